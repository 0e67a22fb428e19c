"""Decoders: one module per backend behind one protocol, and `auto`, which picks among them."""

from audio.decoders.auto import AUTO_ORDER, BACKENDS, available_backends, open_decoder
from audio.decoders.protocol import Backend, Decoder

__all__ = ["AUTO_ORDER", "BACKENDS", "Backend", "Decoder", "available_backends", "open_decoder"]
