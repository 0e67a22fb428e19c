"""torchaudio's windowed-sinc resampler."""

from math import ceil, gcd

import torch
from torchaudio.transforms import Resample

from audio.errors import ResampleError
from audio.resamplers.blocks import Samples, WindowResampler
from audio.resamplers.kaiser import BETA, MAX_COEFFICIENTS, ROLLOFF, ZERO_CROSSINGS


class TorchaudioResampler(WindowResampler):
    """Runs `torchaudio.transforms.Resample` over windows.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second.

    Raises
    ------
    ResampleError
        If the rates would take a filter of more than `MAX_COEFFICIENTS`.

    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        divisor = gcd(source_rate, target_rate)
        up, down = target_rate // divisor, source_rate // divisor
        # torchaudio keeps one filter for each of the `up` phases, each as long as the context and `down` together.
        context = ceil(ZERO_CROSSINGS * down / (min(up, down) * ROLLOFF))
        coefficients = up * (2 * context + down)
        if coefficients > MAX_COEFFICIENTS:
            raise ResampleError(
                f"{source_rate} Hz to {target_rate} Hz would take torchaudio a filter of {coefficients} coefficients, "
                f'more than the limit of {MAX_COEFFICIENTS}: use implementation="soxr".'
            )
        super().__init__(source_rate, target_rate, context_frames=context)
        self._transform = Resample(
            source_rate,
            target_rate,
            resampling_method="sinc_interp_kaiser",
            lowpass_filter_width=ZERO_CROSSINGS,
            rolloff=ROLLOFF,
            beta=BETA,
        )

    def _convert_window(self, window: Samples) -> Samples:
        with torch.inference_mode():
            converted: Samples = self._transform(torch.from_numpy(window)).numpy()
        return converted
