"""The low-pass filter of the resamplers that take their filter from outside: a sinc under a Kaiser window.

For a window of parameter beta, the stop band lies ``A = beta / 0.1102 + 8.7`` dB down and the transition is
``(A - 8) / 14.36`` times the sample rate divided by the filter's length (Kaiser's design formulas; Oppenheim and
Schafer, Discrete-Time Signal Processing, section on the Kaiser window). With the constants here A is 99 dB, and between
48 kHz and 16 kHz the transition runs from 7.2 kHz to 8.0 kHz.
"""

ZERO_CROSSINGS = 64
"""Zero crossings of the sinc on each side."""

ROLLOFF = 0.95
"""Where the filter is 6 dB down, as a fraction of the lower rate's Nyquist frequency."""

BETA = 10.0
"""The Kaiser window's parameter."""

MAX_COEFFICIENTS = 2**22
"""The most filter coefficients that a resampler may hold: 16 MiB in float32.

The filter has to be sampled at the least common multiple of the two rates, so rates with no common divisor make it
grow with their product: 16 001 Hz to 16 000 Hz would take torchaudio about 1 GiB. Nobody records at such rates, but
a file of a few bytes can claim one.
"""
