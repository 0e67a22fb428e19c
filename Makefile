.PHONY: demo test check bench

demo:
	python3 -m venv .venv && .venv/bin/pip install -q '.[tiny-en]' && .venv/bin/auricle transcribe samples/calls.opus

test:
	python3 -m venv .venv-dev && .venv-dev/bin/pip install -q -e '.[dev]' && .venv-dev/bin/python -m pytest

check:
	.venv-dev/bin/ruff format --check . && .venv-dev/bin/ruff check . && .venv-dev/bin/mypy

bench:
	.venv-dev/bin/python -m bench.quality
