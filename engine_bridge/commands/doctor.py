"""What works on this machine, and how to get the rest."""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from audio import BackendUnavailableError, available_backends, open_resampler
from audio.detectors import open_detector
from audio.resample import IMPLEMENTATIONS
from engine_bridge.engines.model_files import DEFAULT_MODEL
from engine_bridge.engines.open import DEFAULT_SPEC, open_engine
from engine_bridge.engines.vllm_import import import_vllm
from engine_bridge.errors import EngineBridgeError


@dataclass(frozen=True)
class Finding:
    """One part and whether it works.

    Attributes
    ----------
    part : str
        Such as "decoder soundfile".
    problem : str or None
        Why it does not work and how to get it; None if it works.
    detail : str
        What it is, if it works.
    required : bool
        Whether transcribing with default settings needs it.

    """

    part: str
    problem: str | None
    detail: str = ""
    required: bool = False


def examine() -> Iterator[Finding]:
    """Try each decoder, resampler, detector and engine by really using it, and yield what was found."""
    yield Finding("python", None, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name, problem in available_backends().items():
        yield Finding(f"decoder {name}", problem, _version(name), required=name != "torchcodec")
    for name in IMPLEMENTATIONS:
        conversion = partial(open_resampler, 48_000, 16_000, implementation=name)
        yield Finding(f"resampler {name}", _problem(conversion), _version(name))
    yield Finding("detector silero", _problem(partial(open_detector, "silero", 16_000)), _version("silero-vad"))
    try:
        engine = open_engine(DEFAULT_SPEC)
    except EngineBridgeError as error:
        yield Finding(f"engine {DEFAULT_SPEC}", str(error), required=True)
    else:
        yield Finding(f"engine {DEFAULT_SPEC}", None, f"{engine.description}, model {DEFAULT_MODEL}", required=True)
        engine.close()
    yield _vllm()


def _vllm() -> Finding:
    """Tell whether vLLM loads, without starting a model in it."""
    try:
        vllm = import_vllm()
    except EngineBridgeError as error:
        return Finding("engine vllm", str(error))
    return Finding("engine vllm", None, f"vLLM {vllm.__version__}; models: auricle models")


def _problem(use: Callable[[], object]) -> str | None:
    """Return why something optional does not work here and how to get it, or None if it works."""
    try:
        use()
    except BackendUnavailableError as error:
        return f"{error.reason}. {error.remedy}"
    return None


def _version(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version({"pyav": "av"}.get(library, library))
    except PackageNotFoundError:
        return ""
