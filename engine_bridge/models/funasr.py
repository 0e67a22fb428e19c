"""Fun-ASR."""

from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import TRANSCRIPTION_LANGUAGES
from engine_bridge.models.registry import register_audio_model

_TRANSCRIBE = "\u8bed\u97f3\u8f6c\u5199\uff1a"
_CONTEXT = (
    "\u8bf7\u7ed3\u5408\u4e0a\u4e0b\u6587\u4fe1\u606f\uff0c\u66f4\u52a0\u51c6\u786e\u5730\u5b8c\u6210\u8bed\u97f3\u8f6c"
    "\u5199\u4efb\u52a1\u3002\u5982\u679c\u6ca1\u6709\u76f8\u5173\u4fe1\u606f\uff0c\u6211\u4eec\u4f1a\u7559\u7a7a\u3002"
    "\n\n\n**\u4e0a\u4e0b\u6587\u4fe1\u606f\uff1a**\n\n\n\u70ed\u8bcd\u5217\u8868\uff1a[{}]\n"
)
"""The model's own words for "transcribe the speech", and for the list of terms to expect before it."""


def funasr_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Fun-ASR model takes and gives.

    Six feature frames of 10 ms make one, and two convolutions and the adaptor leave an eighth of these.
    """
    return AudioModelInfo(
        family="Fun-ASR",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.preprocessor_config.get("chunk_length", 30)),
        languages=TRANSCRIPTION_LANGUAGES,
        audio_tokens_per_second=100.0 / 6 / 8,
        hidden_size=files.setting("hidden_size", default=None),
        context_tokens=files.setting("max_position_embeddings", default=32_768),
    )


@register_audio_model(
    "FunASRForConditionalGeneration",
    info=funasr_info,
)
class FunAsrProcessor(ChatProcessor):
    """Writes earlier text as the list of terms to expect."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt that the model was trained with."""
        context = _CONTEXT.format(options.prompt) if options.prompt else ""
        asked = f"{context}{_TRANSCRIBE}{'<|AUDIO|>' * count}"
        text = (
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n"
        )
        return self.tokenizer.encode(text, special=False)
