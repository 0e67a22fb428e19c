"""A multilingual Whisper of random weights: as small as can be, writes nonsense, and behaves like a real one."""

import json

import numpy as np

SIZE = 64
HEADS = 2
MELS = 80
_BASE_TOKENS = 50_257
_LANGUAGE_CODES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi
ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd
gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su
"""
_LANGUAGES = _LANGUAGE_CODES.split()
_SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{language}|>" for language in _LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]
_TIMESTAMPS = 1_501
_TEXT_TOKENS = 16


def _byte_alphabet():
    """Return the printable character that stands for each byte in byte-level vocabularies, as GPT-2 defined them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def write_tokenizer(folder):
    """Write tokenizer.json laid out as Whisper's multilingual one, its words made up; return the tokens."""
    vocabulary = {character: byte for byte, character in sorted(_byte_alphabet().items())}
    for number in range(_BASE_TOKENS - len(vocabulary) - 1):
        vocabulary[f"\u0120q{number}"] = len(vocabulary)  # " q0", " q1", ...
    vocabulary[""] = len(vocabulary)  # by this token CTranslate2 knows multilingual models
    special = [
        {
            "id": _BASE_TOKENS + index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, token in enumerate(_SPECIAL)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return [*vocabulary, *_SPECIAL, *(f"<|{index * 0.02:.2f}|>" for index in range(_TIMESTAMPS))]


def write_model(folder):
    """Write a CTranslate2 folder of one layer; seeded, so that it always writes the same nonsense."""
    from ctranslate2.specs import WhisperSpec

    tokens = write_tokenizer(folder)
    random = np.random.default_rng(7)

    def weights(*shape, scale=1.0):
        return (random.standard_normal(shape) * scale / np.sqrt(shape[-1])).astype(np.float32)

    def fill_linear(linear, outputs, inputs, *, scale=1.0):
        linear.weight, linear.bias = weights(outputs, inputs, scale=scale), np.zeros(outputs, dtype=np.float32)

    def fill_norm(norm):
        norm.gamma, norm.beta = np.ones(SIZE, dtype=np.float32), np.zeros(SIZE, dtype=np.float32)

    def fill_feed_forward(ffn):
        fill_norm(ffn.layer_norm)
        fill_linear(ffn.linear_0, 2 * SIZE, SIZE)
        fill_linear(ffn.linear_1, SIZE, 2 * SIZE)

    spec = WhisperSpec(1, HEADS, 1, HEADS)
    encoder, decoder = spec.encoder, spec.decoder
    encoder.conv1.weight, encoder.conv1.bias = weights(SIZE, MELS, 3), np.zeros(SIZE, dtype=np.float32)
    encoder.conv2.weight, encoder.conv2.bias = weights(SIZE, SIZE, 3), np.zeros(SIZE, dtype=np.float32)
    encoder.position_encodings.encodings = weights(1_500, SIZE)
    decoder.embeddings.weight = weights(len(tokens), SIZE, scale=4.0)
    positions = weights(448, SIZE)
    positions[_TEXT_TOKENS:] = 100 * decoder.embeddings.weight[_BASE_TOKENS]  # texts end here
    decoder.position_encodings.encodings = positions
    decoder.projection.weight = decoder.embeddings.weight
    for layer in (encoder.layer[0], decoder.layer[0]):
        fill_norm(layer.self_attention.layer_norm)
        fill_linear(layer.self_attention.linear[0], 3 * SIZE, SIZE)
        fill_linear(layer.self_attention.linear[1], SIZE, SIZE)
        fill_feed_forward(layer.ffn)
    attention = decoder.layer[0].attention
    fill_norm(attention.layer_norm)
    fill_linear(attention.linear[0], SIZE, SIZE)
    fill_linear(attention.linear[1], 2 * SIZE, SIZE)
    fill_linear(attention.linear[2], SIZE, SIZE, scale=30.0)  # what is written depends on what is heard
    fill_norm(encoder.layer_norm)
    fill_norm(decoder.layer_norm)

    first_language = tokens.index("<|en|>")
    spec.config.suppress_ids = list(range(_BASE_TOKENS + 1, tokens.index("<|0.00|>")))
    spec.config.suppress_ids_begin = [_BASE_TOKENS]
    spec.config.lang_ids = list(range(first_language, first_language + len(_LANGUAGES)))
    spec.config.alignment_heads = [[0, 0], [0, 1]]
    spec.register_vocabulary(tokens)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    return folder
