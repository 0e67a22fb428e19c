"""Qwen3-ASR."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import ENGLISH_NAMES, TRANSCRIPTION_LANGUAGES
from engine_bridge.models.qwen3_omni import TOKENS_PER_SECOND
from engine_bridge.models.registry import register_audio_model

TEXT_TAG = "<asr_text>"
"""Stands between the language and the text, both in what the model writes and in a prompt that forces the language."""


def qwen3_asr_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Qwen3-ASR model takes and gives; its encoder is Qwen3-Omni's."""
    return AudioModelInfo(
        family="Qwen3-ASR",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.preprocessor_config.get("chunk_length", 30)),
        languages=TRANSCRIPTION_LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=TOKENS_PER_SECOND,
        items_per_prompt=None,
        hidden_size=files.setting("thinker_config", "text_config", "hidden_size", default=None),
        context_tokens=files.setting("thinker_config", "text_config", "max_position_embeddings", default=65_536),
    )


@register_audio_model(
    "Qwen3ASRForConditionalGeneration",
    info=qwen3_asr_info,
)
class Qwen3AsrProcessor(ChatProcessor):
    """Writes earlier text as the system's turn, and a known language as the beginning of the answer."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt in the form of the model's own toolkit."""
        system = f"<|im_start|>system\n{options.prompt}<|im_end|>\n" if options.prompt else ""
        audio = "<|audio_start|><|audio_pad|><|audio_end|>" * count
        text = f"{system}<|im_start|>user\n{audio}<|im_end|>\n<|im_start|>assistant\n"
        language = "en" if options.task == TRANSLATE else options.language
        if language is not None:
            text += f"language {ENGLISH_NAMES.get(language, language)}{TEXT_TAG}"
        return self.tokenizer.encode(text, special=False)

    def clean(self, text: str) -> str:
        """Return the text behind the language."""
        return text.rpartition(TEXT_TAG)[2]
