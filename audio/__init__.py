"""Files, bytes and arrays in; mono blocks and chunks out. No model, no network, and no torch unless asked for."""

from audio.channels import AudioSpec, ChannelReduction, normalize_audio, to_frames_first
from audio.chunk import Chunk
from audio.decoders import Decoder, available_backends, open_decoder
from audio.detectors import DetectorName, open_detector
from audio.energy import SpeechDetector
from audio.errors import (
    AudioError,
    AudioFileNotFoundError,
    BackendUnavailableError,
    ChannelLayoutError,
    DecodeError,
    EmptyAudioError,
    InvalidSourceError,
    LimitExceededError,
    NoAudioStreamError,
    ResampleError,
    SelectionError,
    SplitError,
    UnreadableAudioError,
)
from audio.info import AudioInfo, StreamInfo
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.load import load_audio
from audio.mixing import ChannelChoice
from audio.probing import probe
from audio.resample import open_resampler, resample
from audio.selection import Selection, Timeline
from audio.split import split_audio, stream_chunks
from audio.stream import MonoStream, open_stream

__all__ = [
    "AudioError",
    "AudioFileNotFoundError",
    "AudioInfo",
    "AudioSpec",
    "BackendUnavailableError",
    "ChannelChoice",
    "ChannelLayoutError",
    "ChannelReduction",
    "Chunk",
    "DecodeError",
    "DecodeLimits",
    "Decoder",
    "DetectorName",
    "EmptyAudioError",
    "InvalidSourceError",
    "Isolation",
    "LimitExceededError",
    "MonoStream",
    "NoAudioStreamError",
    "ResampleError",
    "Selection",
    "SelectionError",
    "SpeechDetector",
    "SplitError",
    "StreamInfo",
    "Timeline",
    "UnreadableAudioError",
    "available_backends",
    "load_audio",
    "normalize_audio",
    "open_decoder",
    "open_detector",
    "open_resampler",
    "open_stream",
    "probe",
    "resample",
    "split_audio",
    "stream_chunks",
    "to_frames_first",
]
