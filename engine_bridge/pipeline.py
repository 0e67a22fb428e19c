"""The two ways in: a recording to its transcript, as it becomes known or whole."""

from collections.abc import Callable, Sequence

from audio.channels import ChannelReduction
from audio.detectors import DetectorName, open_detector
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.mixing import ChannelChoice
from audio.selection import Timeline
from audio.source import AudioSource, Source
from audio.stream import open_stream
from engine_bridge.asking import decoding_options
from engine_bridge.engines.open import DEFAULT_SPEC, open_engine
from engine_bridge.engines.protocol import Engine
from engine_bridge.room import Room
from engine_bridge.transcript import Transcript
from engine_bridge.transcription import Progress, Transcription


def stream_transcript(
    source: AudioSource,
    *,
    engine: str | Engine = DEFAULT_SPEC,
    language: str | None = None,
    per_chunk_language: bool = False,
    task: str = "transcribe",
    beam_size: int | None = None,
    prompt: str | None = None,
    glossary: Sequence[str] = (),
    audio_backend: str = "auto",
    channel_reduction: ChannelChoice = ChannelReduction.MEAN,
    track: int | str | None = None,
    from_seconds: float = 0.0,
    to_seconds: float | None = None,
    timeline: Timeline = "container",
    detector: DetectorName = "energy",
    limits: DecodeLimits | None = None,
    isolation: Isolation | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    room: Room | None = None,
) -> Transcription:
    """Start transcribing a recording; iterate over the result for segments as they become known.

    Parameters
    ----------
    source : path, bytes, binary file object, or (array, sample rate)
        The recording, of any length and format.
    engine : str or Engine
        A specification for `open_engine`, or an engine that stays open afterwards.
    language : str or None
        ISO 639-1 code; None lets the engine detect it.
    per_chunk_language : bool
        Let each chunk be in a language of its own, for recordings that change between languages; a chunk whose
        language is uncertain is taken to be in the recording's.
    task : str
        "transcribe", or "translate" into English.
    beam_size : int or None
        1 for greedy search, more for a search with so many beams. None is greedy, and searches with 5 beams where the
        greedy text is improbable and the engine can do so.
    prompt : str or None
        Text that sets spelling and style, given to the engine before every chunk.
    glossary : sequence of str
        Names and terms to expect, the most important first; given to the engine before every chunk as well. What the
        engine has no room for is left out, and the transcript's warnings say so.
    audio_backend : str
        "auto", or a decoder by name, which then has no fallback.
    channel_reduction : ChannelReduction, "left", "right" or int
        How channels become one, or which of them is taken. `transcribe_channels` gives each its own text.
    track : int, str or None
        The audio track, by its number from 0 or its language; None takes the one marked as default, else the first.
    from_seconds, to_seconds : float, float or None
        The range of time to transcribe. All times stay those of the recording.
    timeline : {"file", "container"}
        Where time 0 is, as for `audio.open_stream`. Here it is the container's by default, so that subtitles fit the
        film also where its sound begins late or has holes.
    detector : {"energy", "silero"}
        What tells speech from the rest: see `audio.open_detector`.
    limits : DecodeLimits or None
        What decoding may cost; those for one's own recordings by default.
    isolation : Isolation or None
        Bounds of a process of its own for decoding; None decodes in this one.
    on_progress : callable or None
        Called with a `Progress` after each chunk.
    room : Room or None
        Room for chunks under way that several transcriptions share; None gives this one as much as keeps the engine
        busy.

    Raises
    ------
    AudioError
        If the source cannot be opened, or the detector cannot be used here.
    EngineBridgeError
        If the engine cannot be opened or cannot do what is asked.

    """
    recording = Source.of(source, limits)
    opened = open_engine(engine) if isinstance(engine, str) else engine
    owns_engine = isinstance(engine, str)
    try:
        options, notices = decoding_options(
            opened,
            language=language,
            per_chunk_language=per_chunk_language,
            task=task,
            beam_size=beam_size,
            prompt=prompt,
            glossary=glossary,
        )
        judge = open_detector(detector, opened.capabilities.sample_rate)
        stream = open_stream(
            recording,
            opened.capabilities.sample_rate,
            backend=audio_backend,
            reduction=channel_reduction,
            track=track,
            from_seconds=from_seconds,
            to_seconds=to_seconds,
            timeline=timeline,
            limits=limits,
            isolation=isolation,
        )
    except BaseException:
        if owns_engine:
            opened.close()
        raise
    return Transcription(
        recording.name,
        stream,
        opened,
        options,
        owns_engine=owns_engine,
        on_progress=on_progress,
        warnings=notices,
        per_chunk_language=per_chunk_language,
        detector=judge,
        room=room,
    )


def transcribe(
    source: AudioSource,
    *,
    engine: str | Engine = DEFAULT_SPEC,
    language: str | None = None,
    per_chunk_language: bool = False,
    task: str = "transcribe",
    beam_size: int | None = None,
    prompt: str | None = None,
    glossary: Sequence[str] = (),
    audio_backend: str = "auto",
    channel_reduction: ChannelChoice = ChannelReduction.MEAN,
    track: int | str | None = None,
    from_seconds: float = 0.0,
    to_seconds: float | None = None,
    timeline: Timeline = "container",
    detector: DetectorName = "energy",
    limits: DecodeLimits | None = None,
    isolation: Isolation | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    room: Room | None = None,
) -> Transcript:
    """Transcribe a recording. Takes the arguments of `stream_transcript`, and raises what it raises."""
    with stream_transcript(
        source,
        engine=engine,
        language=language,
        per_chunk_language=per_chunk_language,
        task=task,
        beam_size=beam_size,
        prompt=prompt,
        glossary=glossary,
        audio_backend=audio_backend,
        channel_reduction=channel_reduction,
        track=track,
        from_seconds=from_seconds,
        to_seconds=to_seconds,
        timeline=timeline,
        detector=detector,
        limits=limits,
        isolation=isolation,
        on_progress=on_progress,
        room=room,
    ) as transcription:
        return transcription.result()
