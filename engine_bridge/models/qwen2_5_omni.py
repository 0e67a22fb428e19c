"""Qwen2.5-Omni, of which only the part that listens and writes text is used."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor, instruction
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import TRANSCRIPTION_LANGUAGES
from engine_bridge.models.registry import register_audio_model


def qwen2_5_omni_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Qwen2.5-Omni model takes and gives: 40 ms a token.

    Its feature extractor takes minutes, but clips of 30 s are what vLLM reckons with.
    """
    return AudioModelInfo(
        family="Qwen2.5-Omni",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=min(30.0, float(files.preprocessor_config.get("chunk_length", 30))),
        languages=TRANSCRIPTION_LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=25.0,
        items_per_prompt=None,
        hidden_size=files.setting("thinker_config", "text_config", "hidden_size", default=None),
        context_tokens=files.setting("thinker_config", "text_config", "max_position_embeddings", default=32_768),
    )


@register_audio_model(
    ("Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration"),
    info=qwen2_5_omni_info,
)
class Qwen25OmniProcessor(ChatProcessor):
    """Writes the audio before the instruction."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt by the model's chat template."""
        return self.tokenizer.chat("<|audio_bos|><|AUDIO|><|audio_eos|>" * count + instruction(options))
