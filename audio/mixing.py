"""How channels become one, block by block: their mix, one of them, or the way out where a mix is silence."""

from __future__ import annotations

from math import log10, sqrt
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audio.channels import ChannelReduction, reduce_block
from audio.errors import ChannelLayoutError
from audio.positions import seconds_from_samples

ChannelChoice: TypeAlias = ChannelReduction | Literal["left", "right"] | int
"""A reduction of all channels, or one channel by name or number, from 0."""

CANCELLATION_RATIO = 1e-3
"""Energy of the mix against the mean energy of its channels below which they are taken to cancel each other: 30 dB.
One sounding channel among 64 silent ones stays 18 dB down."""

_SILENCE = 1e-9
"""Mean square (-90 dBFS) below which a block says nothing of its channels."""

_SIDES = {"left": 0, "right": 1}

# The channels of FFmpeg's named layouts in their order (libavutil/channel_layout.c), from three channels up.
_LAYOUTS = {
    "2.1": "FL FR LFE",
    "3.0": "FL FR FC",
    "3.0(back)": "FL FR BC",
    "3.1": "FL FR FC LFE",
    "4.0": "FL FR FC BC",
    "4.1": "FL FR FC LFE BC",
    "quad": "FL FR BL BR",
    "quad(side)": "FL FR SL SR",
    "5.0": "FL FR FC BL BR",
    "5.0(side)": "FL FR FC SL SR",
    "5.1": "FL FR FC LFE BL BR",
    "5.1(side)": "FL FR FC LFE SL SR",
    "6.0": "FL FR FC BC SL SR",
    "6.0(front)": "FL FR FLC FRC SL SR",
    "6.1": "FL FR FC LFE BC SL SR",
    "6.1(back)": "FL FR FC LFE BL BR BC",
    "hexagonal": "FL FR FC BL BR BC",
    "7.0": "FL FR FC BL BR SL SR",
    "7.1": "FL FR FC LFE BL BR SL SR",
    "7.1(wide)": "FL FR FC LFE BL BR FLC FRC",
    "7.1(wide-side)": "FL FR FC LFE FLC FRC SL SR",
}

# ITU-R BS.775-3, table 2: a stereo pair is left + 0.7071 centre + 0.7071 left surround, and the same on the right, with
# the low-frequency channel left out. One channel is the mean of that pair, as it is of a stereo recording. So dialogue
# in the centre is 3 dB down, where a plain mean of six channels puts it 15.6 dB down.
_WEIGHTS = {
    **dict.fromkeys(("FL", "FR", "FLC", "FRC"), 1 / 2),
    "FC": 1 / sqrt(2),
    **dict.fromkeys(("BL", "BR", "SL", "SR"), 1 / sqrt(8)),
    "BC": 1 / 2,
    "LFE": 0.0,
}


def check_choice(choice: int | str) -> ChannelChoice:
    """Return a choice of channels, of which names may come as plain text.

    Raises
    ------
    ChannelLayoutError
        It is not known.

    """
    if isinstance(choice, int) and not isinstance(choice, bool) and choice >= 0:
        return choice
    if choice == "left":
        return "left"
    if choice == "right":
        return "right"
    try:
        return ChannelReduction(str(choice))
    except ValueError:
        names = ", ".join([*ChannelReduction, *_SIDES])
        raise ChannelLayoutError(
            f"the channel choice {choice!r} is not known: give one of {names}, or a channel's number from 0."
        ) from None


class Mixer:
    """Makes one channel of a recording's blocks.

    The mean of a recording with a known surround layout is weighted by that layout. Where a mean or sum cancels, as it
    does when one of two microphones is wired the wrong way round, a channel that sounds is given in its place. That is
    decided for each block, of up to a second, and holds through silence until a block says otherwise.

    Parameters
    ----------
    choice : ChannelReduction, "left", "right" or int
        Which channel, or how all become one.
    channels : int
        Channels of the blocks.
    layout : str or None
        FFmpeg's name of their layout, such as "5.1(side)", where it is known.
    sample_rate : int
        Frames per second, for the times in warnings.

    Raises
    ------
    ChannelLayoutError
        The recording has no such channel.

    """

    def __init__(self, choice: ChannelChoice, channels: int, layout: str | None, sample_rate: int) -> None:
        self._channel: int | None = None
        self._reduction = ChannelReduction.MEAN
        if isinstance(choice, ChannelReduction):
            self._reduction = choice
        else:
            self._channel = _SIDES[choice] if isinstance(choice, str) else choice
            if self._channel >= channels:
                raise ChannelLayoutError(
                    f"there is no channel {choice}: the recording has {channels}, numbered from 0; choose one of them."
                )
        self._weights = _weights(layout, channels) if self._reduction is ChannelReduction.MEAN else None
        self._heard = [True] * channels if self._weights is None else [weight > 0 for weight in self._weights]
        summing = self._reduction in (ChannelReduction.MEAN, ChannelReduction.SUM)
        self._watches = channels > 1 and self._channel is None and summing
        self._rate = sample_rate
        self._position = 0
        self._cancels = False
        self._replaced = 0
        self._replaced_from = 0
        self._mix_energy = 0.0
        self._channel_energy = 0.0

    @property
    def warnings(self) -> list[str]:
        """What the listener should know of the mix so far, one sentence each."""
        if not self._replaced:
            return []
        loss = "the mix is silent"
        if self._mix_energy > 0:
            level = -10 * log10(self._mix_energy / self._channel_energy)
            loss = f"the mix is {level:.0f} dB below them"
        begin = seconds_from_samples(self._replaced_from, self._rate)
        length = seconds_from_samples(self._replaced, self._rate)
        return [
            f"the channels cancel each other ({loss}): "
            f"the first channel alone was taken for {length:.2f} s, from {begin:.2f} s on"
        ]

    def mix(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a block's one channel.

        Parameters
        ----------
        block : ndarray, shape (frames, channels), float32
            The next frames, their memory in either order.

        Returns
        -------
        samples : ndarray, shape (frames,), float32
            A view of `block` where it is one of its channels.

        """
        mono = self._mixed(block)
        if self._watches and len(block):
            mono = self._unless_cancelled(block, mono)
        self._position += len(block)
        return mono

    def _mixed(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._channel is not None:
            return block[:, self._channel]
        if self._weights is None:
            return reduce_block(block, self._reduction)
        # The weights add up to more than 1: only where all channels are loud at once does the mix leave [-1, 1].
        weighted: NDArray[np.float32] = block @ self._weights
        return np.clip(weighted, -1.0, 1.0, out=weighted)

    def _unless_cancelled(self, block: NDArray[np.float32], mono: NDArray[np.float32]) -> NDArray[np.float32]:
        heard = block if all(self._heard) else block[:, self._heard]
        flat = heard.ravel(order="K")
        channel_energy = float(np.dot(flat, flat)) / heard.shape[1]
        mix_energy = float(np.dot(mono, mono))
        if channel_energy > _SILENCE * len(block):
            self._cancels = mix_energy < CANCELLATION_RATIO * channel_energy
        if not self._cancels:
            return mono
        if not self._replaced:
            self._replaced_from = self._position
        self._replaced += len(block)
        self._mix_energy += mix_energy
        self._channel_energy += channel_energy
        for channel in range(heard.shape[1]):
            samples = heard[:, channel]
            if float(np.dot(samples, samples)) >= channel_energy / 2:
                return samples
        return mono


def _weights(layout: str | None, channels: int) -> NDArray[np.float32] | None:
    """Return each channel's weight in a layout's down-mix, or None for a plain mean."""
    roles = _LAYOUTS.get(layout or "", "").split()
    if len(roles) != channels or not roles:
        return None
    return np.array([_WEIGHTS[role] for role in roles], np.float32)
