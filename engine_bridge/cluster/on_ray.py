"""What a job on a cluster asks of Ray: connecting, placing engines, running passes, and telling what went wrong."""

import logging
import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from audio.errors import AudioError
from engine_bridge.batch.fingerprints import package_version
from engine_bridge.cluster.engines import Asked, Recogniser, Voter, agree
from engine_bridge.cluster.messages import Contract, Cut, Order
from engine_bridge.cluster.reading import read_contents, read_pieces, read_voters
from engine_bridge.cluster.rows import packed
from engine_bridge.errors import ClusterError, EngineBridgeError, EngineUnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES = 16 << 20
"""Chunks travel in blocks of about this size: some ten of them, so that small clusters stay busy to the end and the
loss of a machine repeats little."""

OBJECT_STORE_BYTES = 1 << 30
"""Shared memory for rows under way, where this process starts Ray by itself. Ray Data holds readers back when half of
it is taken."""

MOST_READERS = 2_000
"""Tasks of reading in a window; each reads its recordings one after the other."""

RETRIES = 3
"""How often a block is given out again whose process is lost, by an accident or by what the block holds."""

PATIENCE_SECONDS = 10.0
"""How long a cluster's address may take to answer."""

JOIN_ATTEMPTS = 3
"""How often a cluster that answers is asked to serve a client, for which a busy machine may fail to start a process."""

Stage = Literal["contents", "votes", "pieces"]


@dataclass(frozen=True)
class Engines:
    """What opens the engines, and what each takes of a machine."""

    spec: str
    arguments: Mapping[str, Any]
    count: int | None
    cpus: float
    gpus: float


@dataclass(frozen=True)
class Pass:
    """One run over recordings."""

    stage: Stage
    cut: Cut
    engines: Engines
    contract: Contract
    per_chunk_language: bool
    alone: bool = False
    """Whether each chunk is answered alone, so that one that ends a process takes no other with it."""


def rows_in_cluster(ray: Any, orders: list[Order], run: Pass) -> Iterator["pa.Table"]:
    """Yield the rows that come of recordings. Ray Data runs within the cluster, which a client is not."""
    if not ray.util.client.ray.is_connected():
        yield from rows_of_pass(orders, run)
        return
    remote = ray.remote(num_cpus=0)(_Driver).remote(orders, run)
    try:
        while (rows := ray.get(remote.next_rows.remote())) is not None:
            yield rows
    finally:
        ray.kill(remote)


class _Driver:
    """Runs a pass within the cluster for a client outside it."""

    def __init__(self, orders: list[Order], run: Pass) -> None:
        self._rows = rows_of_pass(orders, run)

    def next_rows(self) -> "pa.Table | None":
        """Return the next rows; None at the end."""
        return next(self._rows, None)


def rows_of_pass(orders: list[Order], run: Pass) -> Iterator["pa.Table"]:
    """Run a pass by Ray Data, and yield the rows that come of it, as Arrow tables.

    Parameters
    ----------
    orders : list of Order
        The recordings.
    run : Pass
        What is done with them.

    """
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Said of every job that has fewer batches than engines, which nobody can help.
    warnings.filterwarnings("ignore", "The minimum number of concurrent actors", UserWarning)
    blocks = len(orders) if run.alone else min(len(orders), MOST_READERS)
    rows = ray.data.from_items([packed(order) for order in orders], override_num_blocks=blocks)
    if run.stage == "contents":
        rows = rows.flat_map(read_contents, num_cpus=1, max_retries=RETRIES)
    else:
        read = read_voters if run.stage == "votes" else read_pieces
        rows = rows.flat_map(read, fn_args=(run.cut,), num_cpus=1, max_retries=RETRIES)
        rows = _with_engines(ray, rows, run)
    rows.context.target_max_block_size = BLOCK_BYTES
    # A block that is lost again and again with the process at work on it is left out: see `job._Job`.
    rows.context.max_errored_blocks = -1
    rows.context.enable_progress_bars = False
    rows.context.print_on_execution_start = False
    rows.context.raise_original_map_exception = True
    yield from rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)


def _with_engines(ray: Any, rows: Any, run: Pass) -> Any:
    engines, contract = run.engines, run.contract
    arguments: tuple[Any, ...] = (engines.spec, engines.arguments)
    named: dict[str, Any] = {}
    if run.stage == "pieces":
        arguments = (*arguments, contract.options)
        named = {"per_chunk_language": run.per_chunk_language}
    size = {"size": engines.count} if engines.count else {"min_size": 1, "max_size": _room(ray, engines)}
    # Two batches at a time, so that the engine has work while the last clips of one are asked for again.
    together = 1 if run.alone else 2
    return rows.map_batches(
        Recogniser if run.stage == "pieces" else Voter,
        batch_size=1 if run.alone else contract.in_flight,
        batch_format="pyarrow",
        fn_constructor_args=arguments,
        fn_constructor_kwargs=named,
        num_cpus=engines.cpus,
        num_gpus=engines.gpus or None,
        max_task_retries=RETRIES,
        compute=ray.data.ActorPoolStrategy(
            enable_true_multi_threading=True,
            max_concurrent_calls_per_actor=together,
            max_tasks_in_flight_per_actor=1 if run.alone else None,
            **size,
        ),
    )


def _room(ray: Any, engines: Engines) -> int:
    """Return how many engines a cluster has room for, beside one core that reads."""
    resources = ray.cluster_resources()
    if engines.gpus:
        return max(1, int(resources.get("GPU", 0) / engines.gpus))
    return max(1, int((resources.get("CPU", 1) - 1) / engines.cpus)) if engines.cpus else MOST_READERS


def placed(ray: Any, engines: Engines, gpus: float | None) -> Engines:
    """Return the engines with what each takes of a machine."""
    elsewhere = engines.spec.startswith(("http://", "https://"))
    resources = ray.cluster_resources()
    if gpus is None:
        gpus = 1 if resources.get("GPU") and not elsewhere else 0
    arguments = engines.arguments
    if engines.spec.startswith("embedded") and not gpus:
        # An embedded engine would otherwise take all cores of its machine for its own.
        arguments = {"device": "cpu", "workers": max(1, int(engines.cpus)), **arguments}
    found = replace(engines, gpus=gpus, arguments=arguments)
    wanted = (found.count or 1) * found.cpus
    if wanted + 1 > resources.get("CPU", 0):
        raise ClusterError(
            f"the cluster has {resources.get('CPU', 0):g} cores, and {found.count or 1} engines of {found.cpus:g} "
            "each leave none of them to decode: add machines, or ask for fewer engines"
        )
    return found


def agreed(ray: Any, engines: Engines, asked: Asked) -> Contract:
    """Open an engine on the cluster once, to see that it can be opened there and do what is asked."""
    task = ray.remote(num_cpus=engines.cpus, num_gpus=engines.gpus)(agree)
    with translated():
        contract: Contract = ray.get(task.remote(engines.spec, engines.arguments, asked))
    if contract.version != package_version():
        raise ClusterError(
            f"the cluster runs version {contract.version} of this program and this machine {package_version()}: "
            "install the same on all machines"
        )
    return contract


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Give the Ray module, connected to a cluster; leave the cluster at the end if it was joined here."""
    # Ray reports its use to its makers unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
        import ray.util.client
    except (ImportError, OSError) as error:
        raise EngineUnavailableError(
            f"a cluster takes Ray, which cannot load here: {error}. Install it with: pip install 'auricle[ray]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    try:
        _look_for(address)
        _join(ray, address)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ClusterError(
            f"the cluster {address or 'on this machine'} cannot be reached ({_line(error)}): check the address, and "
            "that RAY_AUTH_MODE and the token are those of the cluster"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _look_for(address: str | None) -> None:
    """Raise OSError where nothing answers at a client's address; Ray itself waits half a minute for it."""
    if address is not None and address.startswith("ray://"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS).close()


def _join(ray: Any, address: str | None) -> None:
    """Join a cluster, or start one where none is named and none runs."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is not None:
        _join_at(ray, address, quiet)
        return
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        if os.environ.get("RAY_ADDRESS"):
            raise
        ray.init(address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)


def _join_at(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """Join a cluster by its address, again where it answered but could not start the process that serves a client."""
    for _ in range(JOIN_ATTEMPTS - 1):
        try:
            ray.init(address=address, **quiet)
        except ConnectionAbortedError:
            continue
        return
    ray.init(address=address, **quiet)


@contextmanager
def translated() -> Iterator[None]:
    """Raise what Ray raises as this package's own errors."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except (AudioError, EngineBridgeError):
        raise
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else None
        if isinstance(cause, AudioError | EngineBridgeError):
            raise cause from error
        raise ClusterError(f"the cluster failed ({_line(cause or error)}); start again to go on") from error


def _line(error: BaseException) -> str:
    """Return what an error says, in one line without its full stop."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")[:200]
