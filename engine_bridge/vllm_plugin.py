"""What vLLM finds here by its entry points: endpoints for recordings of any length, and a reader of audio in chats.

``VLLM_PLUGINS=auricle`` puts ours in the place of ``/v1/audio/transcriptions`` and ``/v1/audio/translations``.
``VLLM_MEDIA_CONNECTOR=auricle`` has ours decode what ``input_audio`` and ``audio_url`` carry. Both take their settings
from the ``audio`` part of ``--media-io-kwargs`` (see `ServerSettings.from_options`), and honour
``--allowed-media-domains`` and ``--allowed-local-media-path``.

Importing this imports nothing of vLLM, for vLLM loads it in each of its processes, whoever uses it.
"""

from typing import TYPE_CHECKING, Any

from engine_bridge.errors import EngineUnavailableError

if TYPE_CHECKING:
    from argparse import Namespace

NAME = "auricle"

SUPPORTED_RELEASES = ((0, 32),)
"""The releases of vLLM that these plugins are tested with; its insides change from one to the next."""


def check_vllm() -> None:
    """Raise EngineUnavailableError unless vLLM is here, in a release that these plugins are tested with."""
    try:
        from vllm.version import __version__ as version
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineUnavailableError(
            f"vLLM cannot load here: {error}. Install it with: pip install vllm==0.32.*"
        ) from error
    if not is_supported(version):
        known = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED_RELEASES)
        raise EngineUnavailableError(
            f"auricle's plugins for vLLM are made for its releases {known}, and this is {version}: "
            "install one of them, or start vLLM without VLLM_PLUGINS=auricle and VLLM_MEDIA_CONNECTOR=auricle"
        )


def is_supported(version: str) -> bool:
    """Return whether a version of vLLM is one of the supported releases, whatever its build is called."""
    parts = version.split("+")[0].split(".")
    return tuple(int(part) for part in parts[:2] if part.isdecimal()) in SUPPORTED_RELEASES


def register() -> None:
    """Make ``VLLM_MEDIA_CONNECTOR=auricle`` known. vLLM calls this in each of its processes, also more than once.

    Raises
    ------
    EngineUnavailableError
        The connector is asked for, and this release of vLLM is not one it is tested with.

    """
    from vllm import envs

    if envs.VLLM_MEDIA_CONNECTOR != NAME:
        return
    check_vllm()
    from engine_bridge.vllm_media import install

    install()


class AuricleEndpoints:
    """The endpoint plugin, as `vllm.plugins.endpoint_plugins.interface.EndpointPlugin` describes it.

    Attributes
    ----------
    name : str
        For ``VLLM_PLUGINS``.
    required_tasks : tuple of str
        The server's model has to transcribe.

    """

    name = NAME
    required_tasks = ("transcription",)

    def attach_router(self, app: Any) -> None:
        """Put our routes in the place of vLLM's.

        Raises
        ------
        EngineUnavailableError
            This release of vLLM is not one that the plugin is tested with; the server does not start then.

        """
        check_vllm()
        from engine_bridge.vllm_endpoint import attach

        attach(app)

    async def init_state(self, engine_client: Any, state: Any, args: "Namespace") -> None:
        """Open our engine on vLLM's engine client.

        Raises
        ------
        EngineBridgeError
            The server's model is none that is known here.
        ValueError
            The ``audio`` options of ``--media-io-kwargs`` make no sense.

        """
        from engine_bridge.vllm_endpoint import initialise

        await initialise(engine_client, state, args)
