"""Kimi-Audio."""

from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.registry import register_audio_model

LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh")
"""Those that vLLM takes for this model."""


def kimi_audio_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Kimi-Audio model takes and gives: four states of Whisper's encoder make one token."""
    return AudioModelInfo(
        family="Kimi-Audio",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.preprocessor_config.get("chunk_length", 30)),
        languages=LANGUAGES,
        audio_tokens_per_second=12.5,
        hidden_size=files.setting("hidden_size", default=None),
        context_tokens=files.setting("max_position_embeddings", default=8_192),
    )


@register_audio_model(
    ("MoonshotKimiaForCausalLM", "KimiAudioForConditionalGeneration"),
    info=kimi_audio_info,
)
class KimiAudioProcessor(ChatProcessor):
    """Writes earlier text before the audio, in the model's own turns."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt that the model was trained with."""
        context = f"{options.prompt}\n" if options.prompt else ""
        audio = "<|im_media_begin|><|im_kimia_text_blank|><|im_media_end|>" * count
        text = f"<|im_kimia_user_msg_start|>{context}{audio}<|im_msg_end|><|im_kimia_assistant_msg_start|>"
        return self.tokenizer.encode(text, special=False)
