"""One module for each resampler library, all behind the fixed blocks of `audio.resamplers.blocks`."""
