"""Channels: which axis they lie on, and how several become fewer.

Arrays arrive as (channels, time), as torchaudio and torchcodec give them, or as (time, channels), as soundfile does.
Averaging over the wrong axis destroys a recording without an error, so a layout is inferred only where the shape leaves
no doubt, and can always be stated.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from audio.errors import ChannelLayoutError, InvalidSourceError

if TYPE_CHECKING:
    import torch

Layout = Literal["channels_first", "frames_first"]
"""Which axis comes first: (channels, time) or (time, channels)."""

MAX_INFERRED_CHANNELS = 64
"""The most channels that an axis is taken for without being told, as many as seventh-order ambisonics has: nothing in
use is wider."""

MIN_INFERRED_RATIO = 8
"""How many times longer than the channel axis the time axis has to be before the layout is inferred."""

_LAYOUT_AXES: dict[str, int] = {"channels_first": 0, "frames_first": 1}

# Full scale of each integer sample format: value = (integer - midpoint) / scale. Offset binary exists only for 8 bits.
_INTEGER_SCALES: dict[str, tuple[int, float]] = {
    "int8": (0, 2.0**7),
    "uint8": (128, 2.0**7),
    "int16": (0, 2.0**15),
    "int32": (0, 2.0**31),
}


class ChannelReduction(StrEnum):
    """How several channels become one. The names and values are those of vLLM's multimodal audio module.

    MEAN
        The average of all channels.
    FIRST
        The first channel alone.
    MAX
        The largest value among the channels, sample by sample.
    SUM
        The sum of all channels; it may leave [-1, 1].

    """

    MEAN = "mean"
    FIRST = "first"
    MAX = "max"
    SUM = "sum"


@dataclass(frozen=True)
class AudioSpec:
    """The channels that a model takes.

    Attributes
    ----------
    target_channels : int or None
        How many channels the model takes, at least 1; None takes any number.
    channel_reduction : ChannelReduction
        How several channels become one.

    Raises
    ------
    ChannelLayoutError
        If `target_channels` is below 1, or the reduction is not known.

    """

    target_channels: int | None = 1
    channel_reduction: ChannelReduction = ChannelReduction.MEAN

    def __post_init__(self) -> None:
        if self.target_channels is not None and self.target_channels < 1:
            raise ChannelLayoutError(
                f"target_channels is {self.target_channels}, but a model takes at least 1 channel: "
                "give a positive number, or None to leave the channels as they are."
            )
        try:
            # The plain value ("mean") is taken as well, so that settings from JSON work.
            reduction = ChannelReduction(self.channel_reduction)
        except ValueError:
            names = ", ".join(ChannelReduction)
            raise ChannelLayoutError(
                f"the channel reduction {self.channel_reduction!r} is not known: choose one of {names}."
            ) from None
        object.__setattr__(self, "channel_reduction", reduction)

    @property
    def needs_normalization(self) -> bool:
        """Whether `normalize_audio` has anything to do."""
        return self.target_channels is not None


def channel_axis(shape: tuple[int, ...], layout: Layout | None = None) -> int:
    """Return which axis of a two-dimensional shape holds the channels.

    Parameters
    ----------
    shape : tuple of two ints
        The array's shape.
    layout : {"channels_first", "frames_first"}, optional
        The layout, where known. None infers it: an axis of length 1 is the channel of a mono recording; otherwise the
        shorter axis holds the channels if it is at most `MAX_INFERRED_CHANNELS` long and the other at least
        `MIN_INFERRED_RATIO` times longer. An axis of length 0 is the time of an empty recording.

    Returns
    -------
    axis : int
        0 or 1.

    Raises
    ------
    ChannelLayoutError
        If the shape does not have two dimensions, the layout is unknown or cannot be inferred, or no channel remains.

    """
    if layout is not None and layout not in _LAYOUT_AXES:
        raise ChannelLayoutError(
            f'layout {layout!r} is not known: give "channels_first" for (channels, time), '
            '"frames_first" for (time, channels), or None to infer it.'
        )
    if len(shape) != 2:
        raise ChannelLayoutError(
            f"an array of shape {shape} has {len(shape)} dimensions: "
            "give one recording as (time,), (channels, time) or (time, channels)."
        )
    axis = _LAYOUT_AXES[layout] if layout is not None else _inferred_axis(shape)
    if shape[axis] == 0:
        raise ChannelLayoutError(f"an array of shape {shape} holds no channel: give at least one.")
    return axis


def _inferred_axis(shape: tuple[int, ...]) -> int:
    """Return the channel axis of a shape that leaves no doubt."""
    shorter = 0 if shape[0] <= shape[1] else 1
    channels, frames = shape[shorter], shape[1 - shorter]
    if channels == 1:
        return shorter
    if channels == 0 and 0 < frames <= MAX_INFERRED_CHANNELS:
        return 1 - shorter
    if 0 < channels <= MAX_INFERRED_CHANNELS and frames >= MIN_INFERRED_RATIO * channels:
        return shorter
    raise ChannelLayoutError(
        f"the shape {shape} does not say which axis holds the channels: "
        'state it with layout="channels_first" for (channels, time) or layout="frames_first" for (time, channels).'
    )


def _is_tensor(array: object) -> bool:
    """Whether an object is a torch tensor, found out without importing torch."""
    return type(array).__module__.split(".")[0] == "torch"


def _as_float32(array: Any) -> Any:
    """Return samples as float32: integers are scaled to [-1, 1), floats keep their values."""
    tensor = _is_tensor(array)
    name = str(array.dtype).removeprefix("torch.")
    if name == "float32":
        return array
    if name in _INTEGER_SCALES:
        midpoint, scale = _INTEGER_SCALES[name]
        # In double precision, which holds every 32-bit integer; float32 rounds once, at the end.
        wide = array.double() if tensor else array.astype(np.float64)
        scaled = (wide - midpoint) / scale
        return scaled.float() if tensor else scaled.astype(np.float32)
    if name in ("float16", "bfloat16", "float64", "longdouble", "float128"):
        return array.float() if tensor else array.astype(np.float32)
    raise InvalidSourceError(
        f"samples of type {name} have no known full scale: convert them to float32 in [-1, 1], int16 or int32 first."
    )


def _as_array(audio: Any) -> Any:
    """Return a tensor as it is and anything else as a numpy array."""
    return audio if _is_tensor(audio) else np.asarray(audio)


@overload
def to_frames_first(array: NDArray[Any], layout: Layout | None = None) -> NDArray[np.float32]: ...
@overload
def to_frames_first(array: "torch.Tensor", layout: Layout | None = None) -> "torch.Tensor": ...
def to_frames_first(array: Any, layout: Layout | None = None) -> Any:
    """Return samples with the time axis first.

    Parameters
    ----------
    array : ndarray or torch.Tensor, shape (frames,), (channels, frames) or (frames, channels)
        Floats in [-1, 1], or integers of 8, 16 or 32 bits at full scale.
    layout : {"channels_first", "frames_first"}, optional
        The layout, where known; None infers it as `channel_axis` describes.

    Returns
    -------
    samples : same kind as `array`, shape (frames, channels), float32
        A view where no conversion was needed. One channel for a one-dimensional array.

    Raises
    ------
    ChannelLayoutError
        If the layout is ambiguous or does not fit.
    InvalidSourceError
        If the samples' type has no known full scale.

    """
    array = _as_array(array)
    if array.ndim == 1:
        return _as_float32(array)[:, None]
    axis = channel_axis(tuple(array.shape), layout)
    samples = _as_float32(array)
    return samples if axis == 1 else samples.T


@overload
def normalize_audio(audio: NDArray[Any], spec: AudioSpec, layout: Layout | None = None) -> NDArray[np.float32]: ...
@overload
def normalize_audio(audio: "torch.Tensor", spec: AudioSpec, layout: Layout | None = None) -> "torch.Tensor": ...
def normalize_audio(audio: Any, spec: AudioSpec, layout: Layout | None = None) -> Any:
    """Return samples with the channels that a model takes.

    Parameters
    ----------
    audio : ndarray or torch.Tensor, shape (frames,), (channels, frames) or (frames, channels)
        Floats in [-1, 1], or integers of 8, 16 or 32 bits at full scale.
    spec : AudioSpec
        The channels wanted. ``target_channels=None`` returns `audio` itself, unchanged.
    layout : {"channels_first", "frames_first"}, optional
        The layout, where known; None infers it as `channel_axis` describes.

    Returns
    -------
    samples : same kind as `audio`, float32
        Shape (frames,) for one channel; otherwise (target_channels, frames). Several channels are reduced to one by
        `spec.channel_reduction`; to a smaller number, by keeping the first ones.

    Raises
    ------
    ChannelLayoutError
        If the layout is ambiguous or does not fit, or the recording has fewer channels than the model takes.
    InvalidSourceError
        If the samples' type has no known full scale.

    """
    target = spec.target_channels
    if target is None:
        return audio
    frames_first = to_frames_first(audio, layout)
    channels = int(frames_first.shape[1])
    if channels < target:
        raise ChannelLayoutError(
            f"a recording of {channels} channel(s) cannot be expanded to {target}: "
            "give one with enough channels, or ask for fewer."
        )
    if target > 1:
        return frames_first[:, :target].T
    return _reduce(frames_first, spec.channel_reduction)


def _reduce(frames_first: Any, reduction: ChannelReduction) -> Any:
    """Reduce a (frames, channels) array or tensor to (frames,)."""
    if not _is_tensor(frames_first):
        return reduce_block(frames_first, reduction)
    if frames_first.shape[1] == 1 or reduction is ChannelReduction.FIRST:
        return frames_first[:, 0]
    if reduction is ChannelReduction.MAX:
        return frames_first.amax(dim=1)
    return frames_first.mean(dim=1) if reduction is ChannelReduction.MEAN else frames_first.sum(dim=1)


def reduce_block(block: NDArray[np.float32], reduction: ChannelReduction) -> NDArray[np.float32]:
    """Return a block's channels reduced to one.

    Channel columns are combined with whole-column arithmetic: numpy's reductions over an axis as short as a few
    channels are several times slower.

    Parameters
    ----------
    block : ndarray, shape (frames, channels), float32
        Samples; at least one channel.
    reduction : ChannelReduction
        How the channels become one.

    Returns
    -------
    samples : ndarray, shape (frames,), float32
        A view of `block` where it has one channel.

    """
    channels = block.shape[1]
    if channels == 1 or reduction is ChannelReduction.FIRST:
        return block[:, 0]
    combine = np.maximum if reduction is ChannelReduction.MAX else np.add
    samples: NDArray[np.float32] = combine(block[:, 0], block[:, 1])
    for channel in range(2, channels):
        combine(samples, block[:, channel], out=samples)
    if reduction is ChannelReduction.MEAN:
        samples *= np.float32(1 / channels)
    return samples
