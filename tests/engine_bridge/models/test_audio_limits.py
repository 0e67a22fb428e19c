"""How much audio one prompt may carry: ``limit_mm_per_prompt`` and embeddings in place of audio."""

from dataclasses import replace

import pytest

from engine_bridge.errors import UnsupportedOptionError
from engine_bridge.models import AudioAllowance, allowance, audio_models

WHISPER = audio_models()["WhisperForConditionalGeneration"].describe()
QWEN = audio_models()["Qwen2AudioForConditionalGeneration"].describe()


@pytest.mark.parametrize(
    ("info", "limit", "embeds", "expected"),
    [
        (WHISPER, None, False, AudioAllowance(1, 0)),
        (WHISPER, {"audio": 1}, True, AudioAllowance(1, 1)),
        (WHISPER, {"audio": 0}, False, AudioAllowance(0, 0)),
        (WHISPER, {"audio": 0}, True, AudioAllowance(0, 1)),
        (WHISPER, {"image": 3}, False, AudioAllowance(1, 0)),
        (QWEN, None, True, AudioAllowance(None, None)),
        (QWEN, {"audio": 2}, False, AudioAllowance(2, 0)),
        (QWEN, {"audio": 0}, True, AudioAllowance(0, None)),
    ],
)
def test_a_limit_bounds_audio_and_zero_leaves_embeddings_usable(info, limit, embeds, expected):
    assert allowance(info, limit, enable_mm_embeds=embeds) == expected


@pytest.mark.parametrize("asked", [-1, 2])
def test_a_limit_that_the_model_cannot_keep_to_is_refused(asked):
    with pytest.raises(UnsupportedOptionError, match=rf"allows {asked} waveforms, but Whisper takes 1"):
        allowance(WHISPER, {"audio": asked})


def test_what_is_turned_off_or_too_much_is_refused_by_the_settings_name():
    off = allowance(WHISPER, {"audio": 0})
    with pytest.raises(UnsupportedOptionError, match="limit_mm_per_prompt"):
        off.check("embedded:x", waveforms=1)
    with pytest.raises(UnsupportedOptionError, match="enable_mm_embeds"):
        off.check("embedded:x", embeddings=1)
    with pytest.raises(UnsupportedOptionError, match="1 waveforms a prompt, not 2"):
        allowance(WHISPER).check("embedded:x", waveforms=2)
    allowance(replace(WHISPER, items_per_prompt=None)).check("embedded:x", waveforms=20)
