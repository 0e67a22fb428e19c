"""Cohere's speech recogniser, an encoder and decoder with control tokens."""

from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.registry import register_audio_model

LANGUAGES = ("ar", "de", "el", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "vi", "zh")
"""Those that its model card names."""


def cohere_asr_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Cohere model takes and gives."""
    stride = float(files.setting("preprocessor", "window_stride", default=0.01))
    return AudioModelInfo(
        family="Cohere ASR",
        sample_rate=int(files.setting("sample_rate", default=16_000)),
        audio_spec=MONO,
        max_clip_seconds=float(files.setting("max_audio_clip_s", default=35.0)),
        languages=LANGUAGES,
        audio_tokens_per_second=1 / stride / int(files.setting("encoder", "subsampling_factor", default=8)),
        encoder_decoder=True,
        hidden_size=files.setting("encoder", "d_model", default=None),
        context_tokens=files.setting("transf_decoder", "config_dict", "max_sequence_length", default=1_024),
    )


@register_audio_model(
    "CohereAsrForConditionalGeneration",
    info=cohere_asr_info,
)
class CohereAsrProcessor(ChatProcessor):
    """Writes the control tokens that open a transcript: punctuation yes, timestamps and speakers no."""

    takes_prompt = False

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the control tokens; the model has to be told a language and takes English without one."""
        del count
        language = f"<|{options.language or 'en'}|>"
        opening = ("\u2581", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>", language, language)
        names = (*opening, "<|pnc|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>")
        return [self.tokenizer.token_id(name) for name in names]
