"""The results of a job on a cluster, put together where the job was asked for.

What comes back is small: texts, gaps and times. Each chunk's is kept in the journal as it comes, and a recording's
chunks are joined once the last of them is here, exactly as in one process.
"""

import os
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, pairwise
from typing import Any

from engine_bridge.assembling import Assembly, joined
from engine_bridge.batch.fingerprints import recording_fingerprint
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.results import Failure, RecordingResult
from engine_bridge.batch.working import renamed
from engine_bridge.channels_apart import merged
from engine_bridge.cluster.messages import Ballot, Broken, Content, Contract, End, Heard, Order, Polled
from engine_bridge.cluster.rows import as_json, from_json
from engine_bridge.errors import ClusterError
from engine_bridge.journal import DONE, Journal
from engine_bridge.recognition.language import elected
from engine_bridge.transcript import Transcript

_KEY = struct.Struct(">5sHI")  # what it is of, the channel, the chunk
_CHUNK = b"chunk"


@dataclass
class Entry:
    """One recording of a job, and what has come of it so far.

    Attributes
    ----------
    recording : Recording
        The entry as it was given.
    position : int
        Its place among all.
    order : Order
        What a worker is told.
    settings : mapping
        What its transcript depends on, beside its content and the engine.
    status : stat result or None
        Of its file, before anybody read it.
    fingerprint : str or None
        By which the journal knows it; None until its content is known.
    number : int or None
        Its number in the journal; None until its content is known.
    heard : dict of (int, int) to Heard
        What came of its chunks, by channel and number.
    ends : dict of int to End
        Its channels that have been read.
    votes : dict of int to float or None
        For each channel, the share of votes that its language had.

    """

    recording: Recording
    position: int
    order: Order
    settings: Mapping[str, Any]
    status: os.stat_result | None = None
    fingerprint: str | None = None
    number: int | None = None
    heard: dict[tuple[int, int], Heard] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    votes: dict[int, float | None] = field(default_factory=dict)

    @property
    def done(self) -> dict[int, frozenset[int]]:
        """For each channel, the chunks whose outcome is known."""
        known: defaultdict[int, set[int]] = defaultdict(set)
        for part, index in self.heard:
            known[part].add(index)
        return {part: frozenset(indices) for part, indices in known.items()}

    @property
    def is_complete(self) -> bool:
        """Whether all has come."""
        names = next(iter(self.ends.values())).names if self.ends else ()
        return 0 < len(names) == len(self.ends) and len(self.heard) == sum(end.chunks for end in self.ends.values())


class Collector:
    """Gathers what the stages tell, by recording.

    Parameters
    ----------
    contract : Contract
        With the engine.
    journal : Journal or None
        Where outcomes and results are kept.

    """

    def __init__(self, contract: Contract, journal: Journal | None) -> None:
        self._contract = contract
        self._journal = journal
        self._open: dict[int, Entry] = {}
        self._ballots: defaultdict[tuple[int, int], dict[int, Ballot]] = defaultdict(dict)
        self._polled: dict[int, int] = {}

    def __len__(self) -> int:
        """How many recordings are open."""
        return len(self._open)

    def entries(self) -> list[Entry]:
        """Return the open recordings."""
        return list(self._open.values())

    def orders(self) -> list[Order]:
        """Return what workers are told of the open recordings, those of higher priority first."""
        entries = sorted(self._open.values(), key=lambda entry: -entry.recording.priority)
        return [replace(entry.order, done=entry.done) for entry in entries]

    def unpolled(self) -> list[Order]:
        """Return what workers are told of those open recordings whose language is not all voted on."""
        counted = Counter(number for (number, _), ballots in self._ballots.items() for _ in ballots)
        return [
            order
            for order in self.orders()
            if order.language is None and counted[order.number] != self._polled.get(order.number)
        ]

    def lost(self, reason: str) -> Iterator[RecordingResult]:
        """Give up the recordings that are open still, and yield each as failed at the first chunk that is missing."""
        for entry in self.entries():
            place = 0.0
            for index in count():
                if (0, index) not in entry.heard:
                    break
                place = entry.heard[0, index].stop_seconds
            yield self._failed(entry, Broken(entry.order.number, Failure(ClusterError.__name__, reason, place)))

    def open(self, entry: Entry) -> None:
        """Take a recording that is to be done."""
        self._open[entry.order.number] = entry

    def keep_digest(self, content: Content) -> None:
        """Keep the hash of a file's content, if it is that of the file as it is seen here."""
        entry = self._open[content.number]
        status, path = entry.status, entry.order.source
        same = status is not None and content.traits == (status.st_size, status.st_mtime_ns)
        if self._journal is not None and status is not None and same and isinstance(path, str):
            self._journal.keep_digest(path, status, content.digest)

    def known(self, number: int, digest: bytes, *, retry_failed: bool, since: float = 0.0) -> RecordingResult | None:
        """Look an open recording up by its content, and take what has been heard of it.

        Parameters
        ----------
        number : int
            The recording.
        digest : bytes
            The hash of its content.
        retry_failed : bool
            Whether a recording that failed before is open still.
        since : float
            What was done before this time, in seconds since 1970, is forgotten.

        Returns
        -------
        RecordingResult or None
            What became of it, if that is known; then it is not open any more.

        """
        entry, journal = self._open[number], self._journal
        assert journal is not None  # noqa: S101 - hashes are asked for where there is one; for the type checker
        entry.fingerprint = recording_fingerprint(digest, entry.settings, self._contract.identity)
        found = journal.find(entry.fingerprint)
        entry.number = journal.begin(entry.fingerprint) if found is None else found.number
        if found is not None and found.changed < since:
            journal.forget(found.number)
        elif found is not None and (found.state == DONE or (found.failure is not None and not retry_failed)):
            del self._open[number]
            return self._result(entry, found.failure, known=True, duration=found.duration)
        for key, kept in journal.answers(entry.number).items():
            if key.startswith(_CHUNK):
                _, part, index = _KEY.unpack(key)
                entry.heard[part, index] = from_json(kept, number, part, index)
        return None

    def elect(self) -> None:
        """Count the votes on the open recordings' languages."""
        for (number, part), ballots in self._ballots.items():
            votes: defaultdict[str, float] = defaultdict(float)
            for _, ballot in sorted(ballots.items()):
                for language, probability in ballot.heard:
                    votes[language] += ballot.seconds * probability
            winner, share = elected(votes)
            entry = self._open[number]
            entry.votes[part] = share
            entry.order = replace(entry.order, elected={**entry.order.elected, part: winner})
        self._ballots.clear()
        self._polled.clear()

    def take(self, message: Any) -> RecordingResult | None:
        """Take what a stage tells, and return what became of the recording if that is known now."""
        entry = self._open.get(message.number)
        if entry is None:
            return None  # of a recording that failed meanwhile
        if isinstance(message, Broken):
            return self._failed(entry, message)
        if isinstance(message, Ballot):
            self._ballots[message.number, message.part][message.index] = message
        elif isinstance(message, Polled):
            self._polled[message.number] = message.ballots
        elif isinstance(message, Content):
            self._keep_content(entry, message)
        elif isinstance(message, Heard):
            entry.heard[message.part, message.index] = message
            self._keep([message], entry)
        elif isinstance(message, End):
            entry.ends[message.part] = message
        if entry.is_complete and (self._journal is None or entry.number is not None):
            return self._finished(entry)
        return None

    def _keep_content(self, entry: Entry, content: Content) -> None:
        journal = self._journal
        if journal is None or entry.number is not None:
            return
        self.keep_digest(content)
        entry.fingerprint = recording_fingerprint(content.digest, entry.settings, self._contract.identity)
        entry.number = journal.begin(entry.fingerprint)
        self._keep(entry.heard.values(), entry)

    def _keep(self, heard: Iterable[Heard], entry: Entry) -> None:
        if self._journal is not None and entry.number is not None:
            for each in heard:
                key = _KEY.pack(_CHUNK, each.part, each.index)
                self._journal.keep_answer(entry.number, key, as_json(each))

    def _failed(self, entry: Entry, broken: Broken) -> RecordingResult:
        del self._open[entry.order.number]
        self._ballots = defaultdict(
            dict, {key: value for key, value in self._ballots.items() if key[0] != entry.order.number}
        )
        if self._journal is not None and entry.number is not None and broken.lasting:
            self._journal.fail(entry.number, broken.failure)
        return self._result(entry, broken.failure)

    def _finished(self, entry: Entry) -> RecordingResult:
        del self._open[entry.order.number]
        names = entry.ends[0].names
        transcripts = {name: self._transcript(entry, part) for part, name in enumerate(names)}
        transcript = merged(transcripts) if len(names) > 1 else transcripts[names[0]]
        if self._journal is not None and entry.number is not None:
            self._journal.finish(entry.number, transcript)
        return self._result(entry, None, transcript, duration=transcript.duration - transcript.start)

    def _result(
        self,
        entry: Entry,
        failure: Failure | None,
        transcript: Transcript | None = None,
        *,
        known: bool = False,
        duration: float | None = None,
    ) -> RecordingResult:
        """Return a result; what the journal holds is read from there when it is asked for, rounded as it is there."""
        kept = None
        if failure is None and self._journal is not None and entry.number is not None:
            kept = partial(_kept, self._journal, entry.number, entry.order.name)
        return RecordingResult(
            entry.recording,
            entry.position,
            transcript=kept or transcript,
            failure=failure,
            fingerprint=entry.fingerprint,
            known=known,
            duration=duration,
        )

    def _transcript(self, entry: Entry, part: int) -> Transcript:
        """Return the transcript of a recording, or of one of its channels, as `Transcription` does in one process."""
        contract, end = self._contract, entry.ends[part]
        heard = [entry.heard[part, index] for index in range(end.chunks)]
        outcomes = [each.outcome for each in heard]
        for left, right in pairwise(range(len(heard))):
            across = heard[left].seam
            if across is not None:
                outcomes[left], outcomes[right] = joined(
                    outcomes[left],
                    across,
                    outcomes[right],
                    heard[left].stop_seconds,
                    contract.options.timestamps,
                )
        assembly = Assembly()
        for each, outcome in zip(heard, outcomes, strict=True):
            assembly.add(outcome, each.stop_seconds)
        language = entry.order.elected.get(part, entry.order.language)
        if part not in entry.votes and language is None and len(contract.capabilities.languages) == 1:
            language = contract.capabilities.languages[0]
        return Transcript(
            segments=tuple(assembly.segments),
            gaps=tuple(assembly.gaps),
            duration=end.duration,
            start=end.start,
            language=language,
            language_probability=entry.votes.get(part),
            source=end.source,
            engine=contract.spec,
            backend=end.backend,
            claimed_duration=end.claimed_duration,
            warnings=(*end.warnings, *contract.notices, *end.notes),
            timings=dict(end.timings),
        )


def _kept(journal: Journal, number: int, name: str | None) -> Transcript:
    return renamed(journal.transcript(number), name)
