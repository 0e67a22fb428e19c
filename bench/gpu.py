"""How fast a long recording is transcribed on a GPU, how busy the GPU is meanwhile, and which stage limits.

    python -m bench.gpu [--minutes 120] [--engines vllm,embedded] [--sequences 64]

Where there is no CUDA GPU it says so and ends. The model has the shapes of Whisper large-v3-turbo and random weights,
for which nothing has to be fetched: speed does not depend on what the weights are. What it writes is nonsense, but as
much of it as people say in 30 s: each clip's text is the same 100 tokens, after which the weights make it end. The
embedded engine finds words' times by attention, which random weights place anywhere, so that it may look for speech
without text again; the column of attempts tells how often. The recording is the sample `calls`, over and over.

Needs torch and transformers for the model, vLLM for the first engine and CTranslate2 for the second. An engine that
cannot be had is listed with the reason.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine_bridge.models.languages import WHISPER_LANGUAGES
from engine_bridge.timing import CHECK, DECODE_AUDIO, SPLIT, WAIT, StageSeconds, snapshot

SAMPLE = Path(__file__).resolve().parent.parent / "samples" / "calls.opus"
RATE = 16_000

LARGE_V3_TURBO = {
    "encoder_layers": 32,
    "decoder_layers": 4,
    "d_model": 1280,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "num_mel_bins": 128,
}
"""As openai/whisper-large-v3-turbo has them in its config.json; its vocabulary has 51866 tokens, as here."""

TEXT_TOKENS = 100
"""The text of a clip: 30 s at 150 words a minute are 75 words, which are about as many tokens."""

_PROMPT_TOKENS = 4  # start, language, task, no timestamps
_FIRST_WORD = 256  # what comes before stands for single bytes
_BASE_TOKENS = 50_257
_TIMESTAMPS = 1_501
_LANGUAGES = (*WHISPER_LANGUAGES, "yue")
_TASKS = ("translate", "transcribe")
_SPECIAL = [
    *("<|endoftext|>", "<|startoftranscript|>"),
    *(f"<|{name}|>" for name in (*_LANGUAGES, *_TASKS, "startoflm", "startofprev", "nospeech", "notimestamps")),
    *(f"<|{index * 0.02:.2f}|>" for index in range(_TIMESTAMPS)),
]
_LOGIT = 25.0  # of the token that is to come; the others have about 1
_PUSH = 8.0  # how much more the place in the text counts than all that the layers add

_BUSY = 0.9
"""A thread that is at work for this share of the time is what the others wait for."""


def gpu_problem() -> str | None:
    """Return why there is no CUDA GPU to measure, or None."""
    if shutil.which("nvidia-smi") is None:
        return "there is no CUDA GPU here: nvidia-smi is not installed"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout.startswith("GPU "):
        told = (listed.stderr or listed.stdout).strip().splitlines()
        return f"there is no CUDA GPU here: nvidia-smi says {told[0] if told else 'nothing'!r}"
    return None


class Utilisation:
    """Samples how busy the first GPU is, five times a second, while the block runs."""

    def __enter__(self) -> "Utilisation":
        self.percent: list[float] = []
        command = [
            "nvidia-smi",
            "-i",
            "0",
            "--query-gpu=utilization.gpu",
            "--format=csv,noheader,nounits",
            "-lms",
            "200",
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        written, _ = self._process.communicate()
        lines = written.splitlines() if written.endswith("\n") else written.splitlines()[:-1]
        self.percent = [float(line) for line in lines if line.strip().isdigit()]

    @property
    def mean(self) -> float | None:
        """Per cent of the time in which a kernel ran; None where nothing was sampled."""
        return sum(self.percent) / len(self.percent) if self.percent else None


def grown(before: Mapping[str, StageSeconds], after: Mapping[str, StageSeconds]) -> dict[str, StageSeconds]:
    """Return what each stage took between two snapshots."""
    nothing = StageSeconds()
    stages = {}
    for name, stage in after.items():
        had = before.get(name, nothing)
        if stage.times > had.times or stage.busy > had.busy:
            stages[name] = StageSeconds(
                stage.busy - had.busy, stage.wall - had.wall, stage.times - had.times, stage.parallel
            )
    return stages


def limiting_stage(stages: Mapping[str, StageSeconds], seconds: float) -> str:
    """Return the stage that all others wait for.

    Decoding and cutting share a thread, and checking has one: one of these that is at work nearly all the time limits.
    Otherwise the engine does, and of its stages the one in which clips spend the most time, for there they queue.
    """
    nothing = StageSeconds()
    for thread in ((DECODE_AUDIO, SPLIT), (CHECK,)):
        if sum(stages.get(name, nothing).wall for name in thread) >= _BUSY * seconds:
            return max(thread, key=lambda name: stages.get(name, nothing).wall)
    engine = {name: stage.busy for name, stage in stages.items() if name not in (DECODE_AUDIO, SPLIT, CHECK, WAIT)}
    return max(engine, key=lambda name: engine[name]) if engine else WAIT


def write_tokenizer(folder: Path) -> dict[str, int]:
    """Write a tokenizer laid out as that of Whisper large-v3, its words made up; return its special tokens."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    # Byte-level vocabularies, as GPT-2 defined them, give each byte a character that can be printed.
    vocabulary = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    vocabulary |= {f"\u0120q{number}": _FIRST_WORD + number for number in range(_BASE_TOKENS - _FIRST_WORD - 1)}
    vocabulary[""] = _BASE_TOKENS - 1  # by this token CTranslate2 knows multilingual models
    special = {token: _BASE_TOKENS + index for index, token in enumerate(_SPECIAL)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **plain} for token, number in special.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    end = "<|endoftext|>"
    settings = {
        "tokenizer_class": "WhisperTokenizer",
        **{f"{kind}_token": end for kind in ("bos", "eos", "pad", "unk")},
        "model_max_length": 1024,
        "add_prefix_space": False,
        "errors": "replace",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return special


def build_model(folder: Path, shapes: Mapping[str, int], *, half: bool = True) -> Path:
    """Write a multilingual Whisper of these shapes in Hugging Face's layout, with seeded random weights."""
    import torch
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    special = write_tokenizer(folder)
    end, start = special["<|endoftext|>"], special["<|startoftranscript|>"]
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    suppressed = {"suppress_tokens": [], "begin_suppress_tokens": [end]}
    config = WhisperConfig(**shapes, vocab_size=_BASE_TOKENS + len(_SPECIAL), **ends, **suppressed)
    torch.manual_seed(7)
    model = WhisperForConditionalGeneration(config)
    with torch.no_grad():
        _write_texts(model.model.decoder, end)
    (model.half() if half else model).save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=config.num_mel_bins).save_pretrained(folder)
    generation = folder / "generation_config.json"
    settings = {
        **json.loads(generation.read_text(encoding="utf-8")),
        "alignment_heads": [[config.decoder_layers - 1, 0]],
        "no_timestamps_token_id": special["<|notimestamps|>"],
        "prev_sot_token_id": special["<|startofprev|>"],
        "max_initial_timestamp_index": 50,
        "is_multilingual": True,
        "lang_to_id": {f"<|{name}|>": special[f"<|{name}|>"] for name in _LANGUAGES},
        "task_to_id": {name: special[f"<|{name}|>"] for name in _TASKS},
    }
    generation.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return folder


def _write_texts(decoder: object, end: int) -> None:
    """Make the place in the text decide what comes next: words at first, and then the end."""
    import torch

    tokens, places = decoder.embed_tokens.weight, decoder.embed_positions.weight
    size = tokens.shape[1]
    torch.nn.init.normal_(tokens, std=_LOGIT / size)
    words = np.random.default_rng(7).integers(_FIRST_WORD, _FIRST_WORD + 1_000, TEXT_TOKENS)
    follows = torch.full((len(places),), end)
    follows[_PROMPT_TOKENS - 1 : _PROMPT_TOKENS - 1 + TEXT_TOKENS] = torch.from_numpy(words)
    places.copy_(tokens[follows] * (_PUSH * size / _LOGIT))


def convert_model(folder: Path, converted: Path, *, half: bool = True) -> Path:
    """Write the same model as CTranslate2 reads it."""
    from ctranslate2.converters import TransformersConverter

    converter = TransformersConverter(str(folder), copy_files=["tokenizer.json", "preprocessor_config.json"])
    converter.convert(str(converted), quantization="float16" if half else None)
    return converted


def write_recording(path: Path, minutes: float) -> Path:
    """Write the sample, over and over, as a file of so many minutes."""
    import soundfile

    from audio import load_audio

    samples, rate = load_audio(SAMPLE, sr=RATE)
    with soundfile.SoundFile(path, "w", rate, channels=1, format="FLAC") as file:
        left = round(minutes * 60 * rate)
        while left > 0:
            file.write(samples[:left])
            left -= len(samples)
    return path


@dataclass(frozen=True)
class Measured:
    """What one engine took for the recording."""

    description: str
    speed: float
    utilisation: float | None
    stages: dict[str, StageSeconds]
    seconds: float
    attempts: float

    def lines(self) -> list[str]:
        """Return a row of the table, and a line of the stages' seconds."""
        busy = "not known" if self.utilisation is None else f"{self.utilisation:.0f} %"
        limit = limiting_stage(self.stages, self.seconds)
        row = f"| {self.description} | {self.speed:.0f} | {busy} | {limit} | {self.attempts:.2f} |"
        stages = ", ".join(
            f"{name} {stage.busy:.1f} (on the clock {stage.wall:.1f})" for name, stage in self.stages.items()
        )
        return [row, f"\nStages in seconds, of {self.seconds:.1f}: {stages}\n"]


def measure(spec: str, recording: Path, warm: Path, **arguments: object) -> Measured:
    """Open an engine, let it warm up on a short recording, and time it on a long one."""
    from engine_bridge import open_engine, transcribe

    engine = open_engine(spec, **arguments)
    try:
        transcribe(warm, engine=engine, language="en")  # kernels are chosen and graphs captured on first use
        before, start = snapshot(), time.perf_counter()
        with Utilisation() as utilisation:
            transcript = transcribe(recording, engine=engine, language="en")
        seconds = time.perf_counter() - start
        stages = grown(before, snapshot())
        description = engine.description
    finally:
        engine.close()
    attempts = [segment.attempts for segment in transcript.segments]
    return Measured(
        description,
        transcript.duration / seconds,
        utilisation.mean,
        stages,
        seconds,
        sum(attempts) / len(attempts) if attempts else 0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120, help="length of the recording (default 120)")
    parser.add_argument("--engines", default="vllm,embedded", help="which, with commas between (default: both)")
    parser.add_argument("--sequences", type=int, default=64, help="clips that vLLM decodes at once (default 64)")
    arguments = parser.parse_args()
    if problem := gpu_problem():
        print(f"bench.gpu: skipped, for {problem}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            model = build_model(folder / "large-v3-turbo", LARGE_V3_TURBO)
        except ImportError as error:
            print(f"bench.gpu: skipped, for the model cannot be built: {error}; install torch and transformers")
            return
        recording = write_recording(folder / "long.flac", arguments.minutes)
        warm = write_recording(folder / "warm.flac", min(5.0, arguments.minutes))
        print(f"Shapes of Whisper large-v3-turbo, {arguments.minutes:.0f} min of speech\n")
        print("| engine | times real time | GPU in use | limited by | attempts |")
        print("| --- " * 5 + "|")
        for name in arguments.engines.split(","):
            for line in _lines(name, model, recording, warm, arguments.sequences):
                print(line, flush=True)


def _lines(name: str, model: Path, recording: Path, warm: Path, sequences: int) -> list[str]:
    """Return what to print of one engine; where it cannot be had, the reason."""
    try:
        if name == "vllm":
            settings = {"dtype": "float16", "max_model_len": 448, "max_num_seqs": sequences}
            return measure(f"vllm:{model}", recording, warm, **settings).lines()
        if name == "embedded":
            converted = convert_model(model, model.with_name("converted"))
            return measure(f"embedded:{converted}", recording, warm, device="cuda").lines()
    except Exception as error:  # noqa: BLE001 - the other engine is measured all the same
        told = str(error).partition("\n")[0]
        return [f"| {name}: not measured, {type(error).__name__}: {told} | - | - | - | - |"]
    return [f"| {name}: there is no such engine here, choose vllm or embedded | - | - | - | - |"]


if __name__ == "__main__":
    main()
