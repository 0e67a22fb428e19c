"""What imports what: heavy libraries only when they are used, packages in one direction, modules of readable size."""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.recordings import RATE, ROOT, bursts, write_wav

LONGEST_MODULE = 400
MODULES = sorted([*ROOT.glob("audio/**/*.py"), *ROOT.glob("engine_bridge/**/*.py"), ROOT / "cli.py"])


def packages_after(code, *arguments):
    """The top-level packages that a fresh interpreter has imported after some code."""
    report = "\nimport json, sys\nprint(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    result = subprocess.run(
        [sys.executable, "-c", code + report, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(result.stdout.splitlines()[-1])) - set(sys.stdlib_module_names)


def imported_packages(path):
    """The top-level packages that a module's source imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else node.module.split(".")[0])
    return found


class TestAtRunTime:
    def test_audio_imports_numpy_alone(self):
        third_party = {name for name in packages_after("import audio") if not name.startswith("_")}
        assert third_party == {"audio", "numpy"}

    def test_engine_bridge_imports_nothing(self):
        assert {name for name in packages_after("import engine_bridge") if name[0] != "_"} == {"engine_bridge"}

    def test_a_file_that_soundfile_reads_needs_no_other_decoder(self, tmp_path):
        path = write_wav(tmp_path / "talk.wav", bursts(1))
        loaded = packages_after(f"import sys, audio\naudio.load_audio(sys.argv[1], sr={RATE})", path)
        assert "soundfile" in loaded
        assert not loaded & {"torch", "torchcodec", "torchaudio", "av", "scipy"}

    @pytest.mark.parametrize("arguments", [["-h"], ["transcribe", "-h"], ["split", "-h"], ["--version"]])
    def test_help_imports_click_and_what_options_take_alone(self, arguments):
        code = f"import cli\ncli.main({arguments!r}, standalone_mode=False)"
        assert {name for name in packages_after(code) if name[0] != "_"} == {"cli", "click", "engine_bridge"}


class TestInTheSource:
    @pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
    def test_imports_run_one_way(self, path):
        forbidden = {"audio": {"engine_bridge", "cli"}, "engine_bridge": {"cli"}, "cli.py": set()}
        assert not imported_packages(path) & {*forbidden[path.relative_to(ROOT).parts[0]], "tests", "bench"}

    def test_a_modules_length_can_be_read(self):
        lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
        assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}
