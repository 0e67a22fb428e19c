"""FireRedASR2."""

from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import TRANSCRIPTION_LANGUAGES
from engine_bridge.models.registry import register_audio_model


def fireredasr2_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a FireRedASR2 model takes and gives: a quarter of the feature frames, then every so many as one."""
    return AudioModelInfo(
        family="FireRedASR2",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.preprocessor_config.get("chunk_length", 30)),
        languages=TRANSCRIPTION_LANGUAGES,
        audio_tokens_per_second=25.0 / int(files.setting("encoder_downsample_rate", default=2)),
        hidden_size=files.setting("hidden_size", default=None),
        context_tokens=files.setting("max_position_embeddings", default=32_768),
    )


@register_audio_model(
    "FireRedASR2ForConditionalGeneration",
    info=fireredasr2_info,
)
class FireRedAsr2Processor(ChatProcessor):
    """Writes the one prompt that the model was trained with."""

    takes_prompt = False

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt: "please transcribe the audio as text", in Chinese."""
        del options
        asked = "\u8bf7\u8f6c\u5199\u97f3\u9891\u4e3a\u6587\u5b57"
        text = f"<|im_start|>user\n{'<|AUDIO|>' * count}{asked}<|im_end|>\n<|im_start|>assistant\n"
        return self.tokenizer.encode(text, special=False)
