"""Ultravox."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor, instruction
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import codes
from engine_bridge.models.registry import register_audio_model

LANGUAGES = codes(
    """
    ar be bg bn cs cy da de el en es et fa fi fr gl hi hu it ja ka lt lv mk mr nl pl pt ro ru sk sl sr sv sw
    ta th tr uk ur vi zh
    """
)
"""Those that its model card names."""

ENCODER_STATES_PER_SECOND = 50.0
"""Its encoder is Whisper's."""


def ultravox_info(files: ModelFiles) -> AudioModelInfo:
    """Return what an Ultravox model takes and gives; several neighbouring states of its encoder make one token."""
    stacked = int(files.setting("stack_factor", default=8))
    return AudioModelInfo(
        family="Ultravox",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.preprocessor_config.get("chunk_length", 30)),
        languages=LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=ENCODER_STATES_PER_SECOND / stacked,
        items_per_prompt=None,
        hidden_size=files.setting("text_config", "hidden_size", default=files.setting("hidden_size", default=None)),
        context_tokens=files.setting("text_config", "max_position_embeddings", default=8_192),
    )


@register_audio_model(
    "UltravoxModel",
    info=ultravox_info,
)
class UltravoxProcessor(ChatProcessor):
    """Writes the audio behind the instruction."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt by the language model's chat template."""
        return self.tokenizer.chat("\n".join([instruction(options), *["<|audio|>"] * count]))
