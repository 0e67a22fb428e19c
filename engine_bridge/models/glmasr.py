"""GLM-ASR."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor, asked_after
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import TRANSCRIPTION_LANGUAGES
from engine_bridge.models.registry import register_audio_model


def glmasr_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a GLM-ASR model takes and gives: four states of a Whisper-like encoder make one token."""
    return AudioModelInfo(
        family="GLM-ASR",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.preprocessor_config.get("chunk_length", 30)),
        languages=TRANSCRIPTION_LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=50.0 / int(files.setting("merge_factor", default=4)),
        items_per_prompt=None,
        hidden_size=files.setting("text_config", "hidden_size", default=None),
        context_tokens=files.setting("text_config", "max_position_embeddings", default=8_192),
    )


@register_audio_model(
    "GlmAsrForConditionalGeneration",
    info=glmasr_info,
)
class GlmAsrProcessor(ChatProcessor):
    """Writes the audio before the question that the model was trained with."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt by the model's chat template."""
        return self.tokenizer.chat(asked_after("<|pad|>" * count, options))
