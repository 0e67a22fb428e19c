"""Granite Speech."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor, asked_after
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.registry import register_audio_model

LANGUAGES = ("de", "en", "es", "fr", "ja", "pt")
PLUS_LANGUAGES = ("de", "en", "es", "fr", "pt")
"""Those that the model cards name."""

PLUS = "GraniteSpeechPlusForConditionalGeneration"


def granite_speech_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Granite Speech model takes and gives.

    Two feature frames of 10 ms make one state, and a window of states becomes a window's share of tokens.
    """
    return AudioModelInfo(
        family="Granite Speech",
        sample_rate=16_000,
        audio_spec=MONO,
        max_clip_seconds=30.0,
        languages=PLUS_LANGUAGES if PLUS in files.architectures else LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=50.0 / int(files.setting("downsample_rate", default=5)),
        hidden_size=files.setting("text_config", "hidden_size", default=None),
        context_tokens=files.setting("text_config", "max_position_embeddings", default=131_072),
    )


@register_audio_model(
    ("GraniteSpeechForConditionalGeneration", PLUS),
    info=granite_speech_info,
)
class GraniteSpeechProcessor(ChatProcessor):
    """Writes the audio before the question that the model was trained with."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt by the model's chat template."""
        return self.tokenizer.chat(asked_after("<|audio|>" * count, options))
