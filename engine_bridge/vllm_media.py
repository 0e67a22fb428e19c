"""Audio in chat requests to vLLM: read, limited, and brought to one channel by us. Imports vLLM."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vllm import envs
from vllm.connections import HTTPConnection, global_http_connection
from vllm.exceptions import VLLMValidationError
from vllm.multimodal.media.audio import AudioMediaIO
from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY, MODALITY_IO_MAP, MediaConnector

from audio.errors import AudioError, LimitExceededError
from engine_bridge.errors import MediaError, UnsupportedOptionError
from engine_bridge.media import open_media
from engine_bridge.preparation import PreparationSettings, prepared
from engine_bridge.server.held import inputs_of
from engine_bridge.server.metrics import process_metrics
from engine_bridge.server.problems import problem_of
from engine_bridge.server.settings import ServerSettings, check_request_options
from engine_bridge.vllm_plugin import NAME

_THREADS = 8


def install() -> None:
    """Register the connector, and the rule for what requests may change; doing it again changes nothing."""
    MEDIA_CONNECTOR_REGISTRY.register(NAME)(AuricleMediaConnector)
    MODALITY_IO_MAP["audio"] = AuricleAudioIO


class AuricleAudioIO(AudioMediaIO):  # type: ignore[misc]  # vLLM's types are not looked at
    """Decides how options of a request go with those of the server."""

    @classmethod
    def merge_kwargs(
        cls, default_kwargs: dict[str, Any] | None, runtime_kwargs: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return the server's options with the backend that a request may choose.

        Raises
        ------
        VLLMValidationError
            The request asks for anything else, such as higher limits.

        """
        try:
            check_request_options(runtime_kwargs)
        except UnsupportedOptionError as error:
            raise VLLMValidationError(str(error), parameter="media_io_kwargs") from error
        return {**(default_kwargs or {}), **(runtime_kwargs or {})}


class AuricleMediaConnector(MediaConnector):  # type: ignore[misc]  # see above
    """vLLM's connector with another way of reading audio; images and videos are read as ever.

    Parameters
    ----------
    media_io_kwargs : mapping, optional
        Options by kind of media; those of "audio" are as for `ServerSettings.from_options`.
    connection : HTTPConnection
        For images and videos.
    allowed_local_media_path : str
        The folder that ``file:`` addresses may point into.
    allowed_media_domains : list of str, optional
        The only hosts that media is fetched from.

    """

    def __init__(
        self,
        media_io_kwargs: dict[str, dict[str, Any]] | None = None,
        connection: HTTPConnection = global_http_connection,
        *,
        allowed_local_media_path: str = "",
        allowed_media_domains: list[str] | None = None,
    ) -> None:
        super().__init__(
            media_io_kwargs,
            connection,
            allowed_local_media_path=allowed_local_media_path,
            allowed_media_domains=allowed_media_domains,
        )
        self._settings = settings_of(
            (media_io_kwargs or {}).get("audio"), allowed_media_domains, allowed_local_media_path
        )

    def fetch_audio(self, audio_url: str) -> tuple[NDArray[np.float32], int]:
        """Return the audio at an address: shape (frames,), float32 in [-1, 1], and its sample rate.

        Raises
        ------
        VLLMValidationError
            It may not be read, cannot be decoded, or is more than the server takes.

        """
        try:
            return _audio_at(audio_url, self._settings)
        except LimitExceededError as error:
            told = LimitExceededError(error.source, error.reason, self._settings.held_limit(error.limit))
            raise VLLMValidationError(str(problem_of(told)), parameter="audio_url") from error
        except (AudioError, MediaError) as error:
            raise VLLMValidationError(str(problem_of(error)), parameter="audio_url") from error

    async def fetch_audio_async(self, audio_url: str) -> tuple[NDArray[np.float32], int]:
        """Do as `fetch_audio` does, in a thread that nothing else waits for."""
        return await asyncio.get_running_loop().run_in_executor(_threads(), self.fetch_audio, audio_url)


def settings_of(
    options: Mapping[str, Any] | None, allowed_domains: list[str] | None, allowed_local_path: str | None
) -> ServerSettings:
    """Return a server's settings by vLLM's own options and environment; raises ValueError if they make no sense."""
    return ServerSettings.from_options(
        options,
        allowed_domains=allowed_domains,
        allowed_local_path=allowed_local_path,
        allow_redirects=envs.VLLM_MEDIA_URL_ALLOW_REDIRECTS,
    )


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="auricle-media")


def _audio_at(url: str, settings: ServerSettings) -> tuple[NDArray[np.float32], int]:
    wanted = PreparationSettings(
        sample_rate=settings.sample_rate,
        audio_backend=settings.audio_backend,
        limits=settings.chat_limits,
        isolation=settings.isolation,
    )
    with open_media(url, settings.media) as source:
        kept = inputs_of(settings)
        audio = prepared(source, wanted, cache=kept)
        process_metrics().update_cache(kept)
    return audio.samples, audio.sample_rate
