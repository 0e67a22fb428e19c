"""Qwen2-Audio."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor, instruction
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.registry import register_audio_model

LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "yue", "zh")
"""Those that its model card names."""


def qwen2_audio_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Qwen2-Audio model takes and gives: 40 ms a token, two states of a Whisper encoder."""
    return AudioModelInfo(
        family="Qwen2-Audio",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=min(30.0, float(files.preprocessor_config.get("chunk_length", 30))),
        languages=LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=25.0,
        items_per_prompt=None,
        hidden_size=files.setting("text_config", "hidden_size", default=None),
        context_tokens=files.setting("text_config", "max_position_embeddings", default=8_192),
    )


@register_audio_model(
    "Qwen2AudioForConditionalGeneration",
    info=qwen2_audio_info,
)
class Qwen2AudioProcessor(ChatProcessor):
    """Writes numbered audio before the instruction, as the model was trained."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt by the model's chat template."""
        audio = "".join(f"Audio {number}: <|audio_bos|><|AUDIO|><|audio_eos|>\n" for number in range(1, count + 1))
        return self.tokenizer.chat(audio + instruction(options))
