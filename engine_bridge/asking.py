"""What is asked of an engine for a recording, checked against what it can do."""

from collections.abc import Sequence

from engine_bridge.engines.protocol import WIDE_BEAM, DecodingOptions, Engine, EngineCapabilities
from engine_bridge.errors import UnsupportedOptionError
from engine_bridge.prompts import compose_prompt


def decoding_options(
    engine: Engine,
    *,
    language: str | None,
    per_chunk_language: bool,
    task: str,
    beam_size: int | None,
    prompt: str | None,
    glossary: Sequence[str],
) -> tuple[DecodingOptions, tuple[str, ...]]:
    """Return how clips are to be recognised, and what a reader should know of the prompt.

    Parameters
    ----------
    engine : Engine
        Where the clips go.
    language, per_chunk_language, task, beam_size, prompt, glossary
        As for `stream_transcript`.

    Raises
    ------
    UnsupportedOptionError
        If the engine cannot do what is asked.

    """
    if per_chunk_language:
        check_languages(engine.spec, language, detects=engine.capabilities.detects_language)
    before, notices = compose_prompt(prompt, glossary, engine)
    first, second = beam_sizes(engine.capabilities, beam_size)
    options = DecodingOptions(
        language=language,
        task=task,
        beam_size=first,
        doubt_beam_size=second,
        # Decoding with timestamp tokens drops whole passages; times estimated from the text alone lose none.
        timestamps="align" if engine.capabilities.word_times else "none",
        prompt=before,
    )
    engine.check(options)
    return options, notices


def beam_sizes(can: EngineCapabilities, asked: int | None, temperature: float = 0.0) -> tuple[int, int]:
    """Return the beam size of a clip's first search, and that of a second one where its text is improbable.

    Parameters
    ----------
    can : EngineCapabilities
        The engine's.
    asked : int or None
        The beam size that was asked for, for the only search. None leaves it to the engine: greedy, and a beam where
        that is doubtful and the engine can do so.
    temperature : float
        Where it is above 0, samples are drawn and nothing is searched for.

    """
    if asked is not None:
        return asked, 1
    return 1, WIDE_BEAM if can.beam_search and temperature == 0 else 1


def check_languages(spec: str, language: str | None, *, detects: bool) -> None:
    """Raise UnsupportedOptionError if there cannot be a language for each chunk.

    Parameters
    ----------
    spec : str
        The engine's specification.
    language : str or None
        The one that was named for the recording.
    detects : bool
        Whether the engine detects languages.

    """
    if language is not None:
        raise UnsupportedOptionError(
            f"language {language!r} and a language for each chunk exclude each other: name a language or leave it out"
        )
    if not detects:
        raise UnsupportedOptionError(
            f"{spec} cannot detect the language of a chunk; use a multilingual model such as embedded:small"
        )
