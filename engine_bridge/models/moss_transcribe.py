"""MOSS-Transcribe-Diarize, which writes the times and the speaker of each segment as text."""

import re

from engine_bridge.engines.protocol import ClipSegment, DecodingOptions
from engine_bridge.models.chat import MONO, ChatProcessor
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.inputs import Generated
from engine_bridge.models.languages import TRANSCRIPTION_LANGUAGES
from engine_bridge.models.registry import register_audio_model

MAX_SECONDS = 90 * 60.0
"""The longest recording that the model was made for."""

_ASKED = (
    "\u8bf7\u5c06\u97f3\u9891\u8f6c\u5199\u4e3a\u6587\u672c\uff0c\u6bcf\u4e00\u6bb5\u9700\u4ee5\u8d77\u59cb\u65f6\u95f4"
    "\u6233\u548c\u8bf4\u8bdd\u4eba\u7f16\u53f7\uff08[S01]\u3001[S02]\u3001[S03]\u2026\uff09\u5f00\u5934\uff0c\u6b63"
    "\u6587\u4e3a\u5bf9\u5e94\u7684\u8bed\u97f3\u5185\u5bb9\uff0c\u5e76\u5728\u6bb5\u672b\u6807\u6ce8\u7ed3\u675f\u65f6"
    "\u95f4\u6233\uff0c\u4ee5\u6e05\u6670\u6807\u660e\u8be5\u6bb5\u8bed\u97f3\u8303\u56f4\u3002"
)
"""The model's own words for its one task: segments that begin with a time and a speaker and end with a time."""

_SEGMENT = re.compile(r"\[(\d+(?:\.\d+)?)\]\s*\[S\d+\](.*?)(?=\[\d+(?:\.\d+)?\]\s*\[S\d+\]|\Z)", re.DOTALL)
_END = re.compile(r"\[(\d+(?:\.\d+)?)\]\s*\Z")


def moss_transcribe_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a MOSS-Transcribe-Diarize model takes and gives: four states of a Whisper encoder make one token."""
    return AudioModelInfo(
        family="MOSS-Transcribe-Diarize",
        sample_rate=int(files.preprocessor_config.get("sampling_rate", 16_000)),
        audio_spec=MONO,
        max_clip_seconds=MAX_SECONDS,
        languages=TRANSCRIPTION_LANGUAGES,
        audio_tokens_per_second=50.0 / int(files.setting("audio_merge_size", default=4)),
        timestamps=True,
        hidden_size=files.setting("text_config", "hidden_size", default=None),
        context_tokens=files.setting("text_config", "max_position_embeddings", default=131_072),
    )


@register_audio_model(
    "MossTranscribeDiarizeForConditionalGeneration",
    info=moss_transcribe_info,
)
class MossTranscribeProcessor(ChatProcessor):
    """Writes the model's one question and reads its segments."""

    takes_prompt = False

    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the prompt that the model was trained with."""
        del options
        audio = "<|audio_start|><|audio_pad|><|audio_end|>" * count
        text = (
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            f"<|im_start|>user\n{audio}\n{_ASKED}<|im_end|>\n<|im_start|>assistant\n"
        )
        return self.tokenizer.encode(text, special=False)

    def segments(self, generated: Generated, seconds: float, options: DecodingOptions) -> tuple[ClipSegment, ...]:
        """Return the segments with the times that the model wrote, clamped to the clip, or all text as one."""
        if options.timestamps != "tokens" or not _SEGMENT.search(generated.text):
            return super().segments(generated, seconds, options)
        segments: list[ClipSegment] = []
        reached = 0.0
        for start, body in _SEGMENT.findall(generated.text):
            first = min(max(float(start), reached), seconds)
            closing = _END.search(body.strip())
            last = min(max(float(closing.group(1)), first), seconds) if closing else seconds
            text = _END.sub("", body.strip()).strip()
            if text:
                segments.append(ClipSegment(first, last, text))
                reached = last
        return tuple(segments)

    def clean(self, text: str) -> str:
        """Return the text without times and speakers."""
        found = [_END.sub("", body.strip()).strip() for _, body in _SEGMENT.findall(text)]
        return " ".join(body for body in found if body) if found else text
