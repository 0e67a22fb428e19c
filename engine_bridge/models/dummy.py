"""The largest inputs that a model can get, for measuring how much memory it takes."""

from dataclasses import replace

import numpy as np

from audio.positions import samples_from_seconds
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.models.info import AudioModelInfo
from engine_bridge.models.inputs import AudioProcessor, EngineInput


class AudioDummyInputs:
    """Builds a model's largest valid input for a sequence length.

    Parameters
    ----------
    info : AudioModelInfo
        The model.
    processor : AudioProcessor
        Its processor.

    """

    def __init__(self, info: AudioModelInfo, processor: AudioProcessor) -> None:
        self._info = info
        self._processor = processor

    def build(self, sequence_length: int, waveforms: int | None = None) -> EngineInput:
        """Return as much silence as fits, in a prompt padded to the sequence length.

        Parameters
        ----------
        sequence_length : int
            Positions of the prompt, with what audio takes in it.
        waveforms : int or None
            The most waveforms; 0 gives a prompt without audio, None as many as the model takes.

        Raises
        ------
        ValueError
            If the sequence is too short for the prompt with the shortest waveform.

        """
        takes = self._info.items_per_prompt
        most = takes if waveforms is None or (takes is not None and waveforms > takes) else waveforms
        built = self._silence(0, 0.0) if most == 0 else self._largest(sequence_length, most)
        missing = sequence_length - built.positions
        if missing < 0:
            raise ValueError(
                f"a sequence of {sequence_length} positions is too short for {self._info.family}, whose shortest "
                f"prompt takes {built.positions}: raise max_model_len"
            )
        # The last token again: it is in the vocabulary, and what it says does not matter here.
        return replace(built, prompt=built.prompt + built.prompt[-1:] * missing, positions=sequence_length)

    def _largest(self, room: int, most: int | None) -> EngineInput:
        longest = self._silence(1, self._info.max_clip_seconds)
        if longest.positions <= room:
            if most == 1:
                return longest
            each = self._silence(2, self._info.max_clip_seconds).positions - longest.positions
            fit = 1 + (room - longest.positions) // each if each else most
            return self._silence(min(count for count in (fit, most) if count is not None), self._info.max_clip_seconds)
        # Not even one of full length fits: the longest that does, by bisection over its length in audio tokens.
        rate = self._info.audio_tokens_per_second
        fits, fails = 1, self._info.audio_tokens(self._info.max_clip_seconds)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self._silence(1, middle / rate).positions <= room:
                fits = middle
            else:
                fails = middle
        return self._silence(1, fits / rate)

    def _silence(self, count: int, seconds: float) -> EngineInput:
        silence = np.zeros(samples_from_seconds(seconds, self._info.sample_rate), dtype=np.float32)
        options = DecodingOptions(language=self._info.languages[0], timestamps="none")
        return self._processor.prepare([silence] * count, options)
