"""Gemma 3n."""

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor, instruction
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.languages import TRANSCRIPTION_LANGUAGES
from engine_bridge.models.registry import register_audio_model

WINDOW_SECONDS = 30.0
"""What its model card allows for one clip, and what audio is padded to."""


def gemma3n_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Gemma 3n model takes and gives: a fixed number of tokens, 160 ms each, for every window."""
    tokens = int(files.setting("audio_soft_tokens_per_image", default=188))
    return AudioModelInfo(
        family="Gemma 3n",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=WINDOW_SECONDS,
        languages=TRANSCRIPTION_LANGUAGES,
        tasks=(TRANSCRIBE, TRANSLATE),
        audio_tokens_per_second=tokens / WINDOW_SECONDS,
        padded_to_seconds=WINDOW_SECONDS,
        items_per_prompt=None,
        hidden_size=files.setting("text_config", "hidden_size", default=None),
        context_tokens=files.setting("text_config", "max_position_embeddings", default=32_768),
    )


@register_audio_model(
    "Gemma3nForConditionalGeneration",
    info=gemma3n_info,
)
class Gemma3nProcessor(ChatProcessor):
    """Writes the instruction before the audio."""

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt in the model's turns."""
        asked = f"{instruction(options)} {'<audio_soft_token>' * count}"
        text = f"<start_of_turn>user\n{asked}<end_of_turn>\n<start_of_turn>model\n"
        return self.tokenizer.encode(text, special=True)
