"""Voxtral, Mistral's model for whole utterances (its realtime sibling takes a stream, not clips)."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from audio.channels import Layout
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.inputs import EngineInput
from engine_bridge.models.registry import register_audio_model

LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "it", "nl", "pt")
"""Those that its model card names."""

WINDOW_SECONDS = 30.0
"""Audio is padded to a multiple of this before it reaches the encoder."""

MAX_WAVEFORMS = 5
"""More than these in one prompt are answered worse, as vLLM notes."""


def voxtral_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Voxtral model takes and gives: 80 ms a token, padded to whole windows."""
    return AudioModelInfo(
        family="Voxtral",
        sample_rate=16_000,
        audio_spec=MONO,
        max_clip_seconds=WINDOW_SECONDS,
        languages=LANGUAGES,
        audio_tokens_per_second=12.5,
        padded_to_seconds=WINDOW_SECONDS,
        items_per_prompt=MAX_WAVEFORMS,
        hidden_size=files.setting("text_config", "hidden_size", default=files.setting("dim", default=None)),
        context_tokens=files.setting("text_config", "max_position_embeddings", default=32_768),
    )


@register_audio_model(
    "VoxtralForConditionalGeneration",
    info=voxtral_info,
)
class VoxtralProcessor(ChatProcessor):
    """Writes Mistral's transcription prompt, which has every audio token in place and no room for earlier text."""

    takes_prompt = False

    def prepare(self, audio: Sequence[Any], options: DecodingOptions, *, layout: Layout | None = None) -> EngineInput:
        """Return the input, the waveforms padded with silence to whole windows as the prompt counts them."""
        built = super().prepare(audio, options, layout=layout)
        window = round(WINDOW_SECONDS * built.sample_rate)
        padded = tuple(
            np.pad(waveform, (0, max(1, ceil(len(waveform) / window)) * window - len(waveform)))
            for waveform in built.waveforms
        )
        return replace(built, waveforms=padded, positions=len(built.prompt))

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt of special tokens, which Mistral's tokenizer does not read from text."""
        token = self.tokenizer.token_id
        audio = [token("[BEGIN_AUDIO]")] + [token("[AUDIO]")] * self.info.audio_tokens(WINDOW_SECONDS)
        tokens = [token("<s>"), token("[INST]"), *audio * count, token("[/INST]")]
        if options.language is not None:
            tokens += self.tokenizer.encode(f"lang:{options.language}", special=False)
        return [*tokens, token("[TRANSCRIBE]")]
