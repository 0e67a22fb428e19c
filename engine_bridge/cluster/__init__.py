"""Many recordings on a cluster, by Ray Data.

The stages are those of one process. Workers decode and cut; actors that each open an engine recognise; the process that
asked keeps the journal, joins what was cut, and yields each recording as its last chunk comes::

    recordings -> read and cut (tasks) -> recognise (actors) -> join (here)

Scheduling, transport, back-pressure and what to do when a process or a machine is lost are Ray's. Its workers need this
package, the model, and the recordings at the same paths or addresses; the journal needs only the process that asked.

Where times come from words the outcome is that of one process. Engines that time no words are held to the usual pace of
speech in place of each recording's own, for chunks of one recording do not wait for each other across machines.
"""

from engine_bridge.cluster.job import ClusterResults, parse_address, transcribe_on_ray

__all__ = ["ClusterResults", "parse_address", "transcribe_on_ray"]
