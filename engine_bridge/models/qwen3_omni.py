"""Qwen3-Omni, of which only the part that listens and writes text is used."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor, instruction
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import codes
from engine_bridge.models.registry import register_audio_model

LANGUAGES = codes("ar de en es fr id it ja ko ms nl pt ru tr ur vi yue zh")
"""Those of spoken input that its model card names."""

TOKENS_PER_SECOND = 13.0
"""Three halvings of a hundred feature frames, each rounded up, as its encoder takes a second at a time."""


def qwen3_omni_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Qwen3-Omni model takes and gives."""
    return AudioModelInfo(
        family="Qwen3-Omni",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.preprocessor_config.get("chunk_length", 30)),
        languages=LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=TOKENS_PER_SECOND,
        items_per_prompt=None,
        hidden_size=files.setting("thinker_config", "text_config", "hidden_size", default=None),
        context_tokens=files.setting("thinker_config", "text_config", "max_position_embeddings", default=65_536),
    )


@register_audio_model(
    "Qwen3OmniMoeForConditionalGeneration",
    info=qwen3_omni_info,
)
class Qwen3OmniProcessor(ChatProcessor):
    """Writes the audio before the instruction."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt by the model's chat template."""
        return self.tokenizer.chat("<|audio_start|><|audio_pad|><|audio_end|>" * count + instruction(options))
