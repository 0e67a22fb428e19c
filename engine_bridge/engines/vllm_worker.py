"""What vLLM's workers gain, so that an encoder's states can be had: vLLM itself gives only text.

Loaded by vLLM into each of its worker processes (``worker_extension_cls``) as a base class of the worker.
"""

from typing import Any

EXTENSION = "engine_bridge.engines.vllm_worker.EncoderExtension"


class EncoderExtension:
    """Runs a Whisper model's encoder by itself."""

    model_runner: Any

    def auricle_encode(self, features: bytes, shape: list[int]) -> tuple[bytes, list[int]] | None:
        """Return the encoder's states of one clip.

        Between processes arrays travel as bytes, for anything richer would be pickled.

        Parameters
        ----------
        features : bytes
            Log-mel features, float32.
        shape : list of int
            Their shape, (mel bins, windows).

        Returns
        -------
        tuple of (bytes, list of int), or None
            The states, float32, and their shape (frames, hidden size).

        """
        import numpy as np
        import torch

        model = self.model_runner.get_model()
        weight = next(model.parameters())
        array = np.frombuffer(features, dtype=np.float32).reshape(1, *shape).copy()
        with torch.inference_mode():
            (states,) = model.embed_multimodal(
                input_features=torch.from_numpy(array).to(device=weight.device, dtype=weight.dtype)
            )
            found = np.ascontiguousarray(states.float().cpu().numpy())
        return found.tobytes(), list(found.shape)
