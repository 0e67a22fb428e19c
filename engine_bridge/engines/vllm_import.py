"""The one door through which vLLM comes in, with all the ways in which it can fail to."""

import os
from types import ModuleType

from engine_bridge.errors import EngineUnavailableError
from engine_bridge.vllm_plugin import SUPPORTED_RELEASES, is_supported

_ENVIRONMENT = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for transcripts
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads, which a fork would leave behind locked
}
"""Settings of vLLM's that are read when it is imported; what the user has set stays."""


def import_vllm() -> ModuleType:
    """Return vLLM, if it loads here and is a release that this engine is tested with.

    Raises
    ------
    EngineUnavailableError
        If it does not load, for whatever reason, or is another release.

    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    releases = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED_RELEASES)
    newest = ".".join(str(part) for part in SUPPORTED_RELEASES[-1])
    try:
        import vllm
    except Exception as error:
        raise EngineUnavailableError(
            f"vLLM cannot load here ({type(error).__name__}: {error}); install it with: pip install 'vllm=={newest}.*'"
        ) from error
    version = str(vllm.__version__)
    if not is_supported(version):
        raise EngineUnavailableError(
            f"vLLM {version} is none of the releases that this engine is tested with ({releases}); "
            f"install one with: pip install 'vllm=={newest}.*'"
        )
    return vllm  # type: ignore[no-any-return]
