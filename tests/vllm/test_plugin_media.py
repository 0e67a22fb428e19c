"""Audio in chats, from vLLM's own reading of a request on: what we decode, limit and refuse."""

import asyncio
import base64
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.vllm_engines import model_folder

pytest.importorskip("vllm.version", reason="vLLM is not installed; see .ci/vllm-environment")

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # those of torch and vLLM

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RATE = 16_000


@pytest.fixture(scope="module")
def connected():
    """Let vLLM load its plugins as its server does."""
    from vllm.multimodal.media.connector import MODALITY_IO_MAP

    from engine_bridge.vllm_plugin import register

    before = MODALITY_IO_MAP["audio"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_MEDIA_CONNECTOR", "auricle")
        register()
        register()  # as it happens in a server of several processes
        yield
    MODALITY_IO_MAP["audio"] = before


@pytest.fixture(scope="module")
def read(request, connected):
    """Return a function from a part of a chat to the audio that vLLM makes of it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.multimodal.media.connector import merge_media_io_kwargs
    from vllm.renderers.chat_utils import parse_chat_messages_async

    arguments = EngineArgs(
        model=str(model_folder(request, "tiny.en")),
        max_model_len=448,
        dtype="float32",
        allowed_local_media_path=str(SAMPLES),
        media_io_kwargs={"audio": {"max_chat_seconds": 300, "isolate": False, "mm_processor_cache_gb": 0.1}},
    )
    config = arguments.create_model_config()

    def read_one(part, media_io_kwargs=None):
        options = merge_media_io_kwargs(config.get_multimodal_config().media_io_kwargs, media_io_kwargs)
        messages = [{"role": "user", "content": [part]}]
        _, data, _ = asyncio.run(
            parse_chat_messages_async(messages, config, content_format="string", media_io_kwargs=options)
        )
        ((waveform, rate),) = data["audio"]
        return waveform, rate

    return read_one


def tone(seconds=1.0, rate=RATE):
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def encoded(samples, rate=RATE, container="FLAC"):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container)
    return base64.b64encode(file.getvalue()).decode()


def input_audio(data, name="flac"):
    return {"type": "input_audio", "input_audio": {"data": data, "format": name}}


def audio_url(url):
    return {"type": "audio_url", "audio_url": {"url": url}}


@pytest.fixture
def refused(read):
    from vllm.exceptions import VLLMClientError

    def refuse(part, named, **options):
        with pytest.raises(VLLMClientError, match=named):
            read(part, **options)

    return refuse


def test_audio_in_a_chat_is_one_channel_at_the_models_rate(read):
    waveform, rate = read(input_audio(encoded(tone())))
    assert rate == RATE
    assert waveform.dtype == np.float32
    np.testing.assert_allclose(waveform, tone(), atol=1e-4)
    stereo = np.stack([tone(rate=48_000), tone(rate=48_000)], axis=1)
    waveform, rate = read(audio_url(f"data:audio/wav;base64,{encoded(stereo, 48_000, 'WAV')}"))
    assert rate == RATE
    assert waveform.shape == (RATE,)
    np.testing.assert_allclose(waveform[500:-500], tone()[500:-500], atol=1e-2)


def test_a_local_file_is_read_below_the_allowed_folder_alone(read, refused):
    waveform, _ = read(audio_url((SAMPLES / "reading.flac").as_uri()), {"audio": {"audio_backend": "pyav"}})
    assert len(waveform) > RATE
    refused(audio_url("file:///etc/hostname"), "may read")


def test_audio_that_is_sent_again_is_not_decoded_again(read, monkeypatch):
    data = encoded(tone(2.0))
    first, _ = read(input_audio(data))
    monkeypatch.setattr("engine_bridge.preparation.open_stream", None)
    again, _ = read(audio_url(f"data:;base64,{data}"))
    np.testing.assert_array_equal(again, first)


def test_limits_hold_and_the_message_names_the_option(refused):
    refused(audio_url((SAMPLES / "calls.opus").as_uri()), "max_chat_seconds")


@pytest.mark.parametrize("options", [{"max_chat_seconds": 1e6}, {"isolate": False}, {"allow_private_addresses": True}])
def test_a_request_raises_no_limit(refused, options):
    refused(input_audio(encoded(tone())), next(iter(options)), media_io_kwargs={"audio": options})


def test_a_backend_that_there_is_not_is_refused(refused):
    refused(input_audio(encoded(tone())), "sox", media_io_kwargs={"audio": {"audio_backend": "sox"}})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]"])
def test_this_networks_addresses_are_not_fetched(refused, host):
    refused(audio_url(f"http://{host}:9/a.wav"), "public internet")


def test_what_is_no_audio_is_refused(refused):
    refused(input_audio(base64.b64encode(b"no audio").decode()), "cannot read it")
    refused(input_audio("@@@"), "base64")
