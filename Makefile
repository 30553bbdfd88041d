# Everything a newcomer needs: `make demo` and `make test` work from a fresh clone with nothing
# installed but Python 3.11+ with venv, and make. The environment lives in .venv; the stamp inside it
# is as new as pyproject.toml once everything is installed, so later runs are quick and offline.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 2

python := $(VENV)/bin/python
ready := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format types imports pytest slow bench clean

help:
	@echo "make demo     analyse a trace, plan it for two GPUs, run and verify the plan without one"
	@echo "make test     everything that has to pass: check, then the tests"
	@echo "make check    formatting, lint, types and layering only"
	@echo "make format   rewrite the sources in the house format"
	@echo "make slow     the tests that are off by default: clean installs, long fuzzing"
	@echo "make bench    measure, and write benchmarks/results/*.json"
	@echo "make clean    remove the environment, caches and build outputs"

setup: $(ready)

$(ready): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(python) || $(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "error: this Python cannot make environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(python) -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(python) -m pip install --quiet --disable-pip-version-check --group dev
	@$(python) -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable .
	@touch $(ready)

demo: $(ready)
	@mkdir -p out && rm -f out/dit.npz out/dit.timeline.json
	@echo "--- analyse: what each launch of a diffusion transformer reads, writes and waits for"
	$(python) -m tessera analyze examples/traces/dit.ptx -o out/dit.txt
	@sed -n '/^steps/,/^  #4/p' out/dit.txt; echo "  ... all of it is in out/dit.txt"
	@echo "--- plan: which of its kernels run on an A100 and which on an L40S"
	$(python) -m tessera plan examples/traces/dit.ptx --gpus a100,l40s --strategy kernel -o out/dit.tsp
	@echo "--- run: both GPUs as processes of this machine, four requests in flight, verified"
	$(python) -m tessera run out/dit.tsp --data examples/traces/dit.npz --backend cpu --requests 6 --verify --outputs out/dit.npz --timeline out/dit.timeline.json
	@echo "--- open out/dit.timeline.json at https://ui.perfetto.dev to see who did what when"

check: format-check types imports

.PHONY: format-check
format-check: $(ready)
	$(python) -m ruff format --check .
	$(python) -m ruff check .

format: $(ready)
	$(python) -m ruff format .
	$(python) -m ruff check --fix .

types: $(ready)
	$(python) -m mypy

imports: $(ready)
	$(VENV)/bin/lint-imports --no-cache --no-logo

test: check pytest

pytest: $(ready)
	$(python) -m pytest -q -n $(PYTEST_WORKERS) $(PYTEST_ARGS)

slow: $(ready)
	$(python) -m pytest -q -m 'slow and not gpu' $(PYTEST_ARGS)

bench: $(ready)
	$(python) benchmarks/parse.py
	$(python) benchmarks/trace_read.py

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
