"""An engine whose answers are kept in a journal, so that no clip is recognised twice.

A recording is resumed by transcribing it again: it is decoded and cut as before, which costs a hundredth of its
recognition, and each clip that was answered before is answered from the journal. What comes out is therefore what an
uninterrupted run gives, whatever the moment at which the first one ended.
"""

import json
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from engine_bridge.engines.protocol import (
    ClipResult,
    ClipSegment,
    ClipWord,
    DecodingOptions,
    Engine,
    LanguageProbabilities,
)
from engine_bridge.engines.wrapped import Relay, WrappedEngine
from engine_bridge.errors import JournalError
from engine_bridge.journal import Journal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_KEY_BYTES = 20
_LANGUAGE = b"language "


class JournalledEngine(WrappedEngine):
    """The engine for one recording, whose answers the journal keeps.

    An answer is in the journal before its future is done.

    Parameters
    ----------
    engine : Engine
        Is asked what the journal does not know.
    journal : Journal
        Keeps the answers.
    number : int
        The recording's number in the journal. It stands for the engine as well: see `recording_fingerprint`.

    """

    def __init__(self, engine: Engine, journal: Journal, number: int) -> None:
        super().__init__(engine)
        self._journal = journal
        self._number = number

    def submit(self, samples: "NDArray[np.float32]", options: DecodingOptions) -> "Future[ClipResult]":
        """Return what the journal knows of a clip, or hand it over; see `Engine.submit`."""
        self.check(options)
        key = _digest(samples, json.dumps(asdict(options), sort_keys=True).encode())
        return self._answered(key, partial(self._engine.submit, samples, options), _packed_result, _unpacked_result)

    def detect_language(self, samples: "NDArray[np.float32]") -> "Future[LanguageProbabilities]":
        """Return what the journal knows of a clip's language, or ask; see `Engine.detect_language`."""
        key = _digest(samples, _LANGUAGE)
        return self._answered(key, partial(self._engine.detect_language, samples), _packed, _unpacked_languages)

    def _answered(
        self,
        key: bytes,
        ask: "Callable[[], Future[Any]]",
        pack: Callable[[Any], bytes],
        unpack: Callable[[bytes], Any],
    ) -> "Future[Any]":
        relay = Relay()
        kept = self._journal.answer(self._number, key)
        if kept is not None:
            relay.fulfil(unpack(kept))
        else:
            relay.follow(ask(), lambda done: self._keep(relay, key, done, pack))
        return relay

    def _keep(self, relay: Relay, key: bytes, done: "Future[Any]", pack: Callable[[Any], bytes]) -> None:
        try:
            answer = done.result()
            self._journal.keep_answer(self._number, key, pack(answer))
        except CancelledError:
            relay.cancel()
        except Exception as error:  # noqa: BLE001 - the engine's or the journal's, for whoever waits
            relay.fulfil(error=error)
        else:
            relay.fulfil(answer)


def _digest(samples: "NDArray[np.float32]", what: bytes) -> bytes:
    digest = blake2b(what, digest_size=_KEY_BYTES)
    digest.update(samples.tobytes())
    return digest.digest()


def _packed(answer: Any) -> bytes:
    return json.dumps(answer, separators=(",", ":"), default=float).encode()


def _packed_result(result: ClipResult) -> bytes:
    return _packed(asdict(result))


def _unpacked_result(packed: bytes) -> ClipResult:
    try:
        fields = json.loads(packed)
        segments = tuple(
            ClipSegment(**{**segment, "words": tuple(ClipWord(**word) for word in segment["words"])})
            for segment in fields.pop("segments")
        )
        return ClipResult(segments, **fields)
    except (ValueError, TypeError, KeyError) as error:
        raise JournalError(f"an answer in the journal cannot be read ({error}); start the job with restart") from error


def _unpacked_languages(packed: bytes) -> LanguageProbabilities:
    return tuple((language, probability) for language, probability in json.loads(packed))
