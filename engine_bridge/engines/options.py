"""Whether an engine can do what is asked of it, by what it says of itself."""

from collections.abc import Iterator

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions, EngineCapabilities
from engine_bridge.errors import UnsupportedOptionError

TIMESTAMP_CHOICES = ("align", "tokens", "both", "none")
"""Where times may come from; see `DecodingOptions`."""


def check_options(spec: str, capabilities: EngineCapabilities, options: DecodingOptions) -> None:
    """Raise UnsupportedOptionError, naming the option, if an engine cannot honour `options`.

    Parameters
    ----------
    spec : str
        The engine's specification, for the message.
    capabilities : EngineCapabilities
        What the engine can do.
    options : DecodingOptions
        What is asked.

    """
    for problem in _problems(capabilities, options):
        raise UnsupportedOptionError(f"{spec} {problem}")


def _problems(can: EngineCapabilities, options: DecodingOptions) -> Iterator[str]:
    multilingual = "name a multilingual model such as embedded:small"
    if options.language is not None and options.language not in can.languages:
        known = "English only" if can.languages == ("en",) else ", ".join(can.languages)
        yield f"does not recognise language {options.language!r} ({known}); {multilingual}"
    if options.task not in (TRANSCRIBE, TRANSLATE):
        yield f"knows no task {options.task!r}: use {TRANSCRIBE} or {TRANSLATE}"
    if options.task == TRANSLATE and not can.translates:
        yield f"cannot do the task 'translate'; {multilingual}"
    yield from _timing_problems(can, options)
    yield from _search_problems(can, options)


def _timing_problems(can: EngineCapabilities, options: DecodingOptions) -> Iterator[str]:
    if options.timestamps not in TIMESTAMP_CHOICES:
        yield f"knows no timestamps {options.timestamps!r}: use one of {', '.join(TIMESTAMP_CHOICES)}"
    if options.timestamps in ("align", "both") and not can.word_times:
        yield f"cannot time words, so timestamps {options.timestamps!r} are not to be had: use 'tokens' or 'none'"
    if options.timestamps in ("tokens", "both") and not can.timestamps:
        yield f"writes no timestamps, so timestamps {options.timestamps!r} are not to be had: use 'none'"


def _search_problems(can: EngineCapabilities, options: DecodingOptions) -> Iterator[str]:
    for beam_size in (options.beam_size, options.doubt_beam_size):
        if beam_size < 1 or (beam_size > 1 and not can.beam_search):
            yield f"cannot search with a beam size of {beam_size}: use 1 for greedy search"
    if options.temperature < 0:
        yield f"cannot sample at temperature {options.temperature}: use 0 or more"
    if options.temperature > 0 and max(options.beam_size, options.doubt_beam_size) > 1:
        yield "cannot search with several beams at a temperature above 0: choose one of the two"
