"""Qwen3-ASR."""

from dataclasses import replace

from engine_bridge.engines.protocol import TRANSLATE, DecodingOptions
from engine_bridge.models.chat import ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import ENGLISH_NAMES, TRANSCRIPTION_LANGUAGES
from engine_bridge.models.qwen3_omni import qwen3_omni_info
from engine_bridge.models.registry import register_audio_model

TEXT_TAG = "<asr_text>"
"""Stands between the language and the text, both in what the model writes and in a prompt that forces the language."""


def qwen3_asr_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Qwen3-ASR model takes and gives: all but the languages as Qwen3-Omni."""
    return replace(qwen3_omni_info(files), family="Qwen3-ASR", languages=TRANSCRIPTION_LANGUAGES)


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
