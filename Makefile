# Everything a newcomer needs: `make demo` and `make test` work from a fresh clone with nothing
# installed but Python 3.11+ with venv, and make. The environment lives in .venv; the stamp inside it
# is as new as pyproject.toml and the lock once everything is installed, so later runs are quick and
# offline, and names the lock. With `LOCK=` the newest versions that pyproject.toml allows are taken.

PYTHON ?= python3
VENV ?= .venv
LOCK ?= requirements-dev.lock
LOCK_ARGS ?= --upgrade
EXTRAS ?=
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 2

python := $(VENV)/bin/python
ready := $(VENV)/.ready
install := $(python) -m pip install --quiet --disable-pip-version-check $(if $(LOCK),--constraint $(LOCK))
checks := format-check lint types imports dead

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-newest test-oldest check format $(checks) pytest slow fuzz bench bench-gpu corpus clean

help:
	@echo "make demo         analyse a trace, plan it for two GPUs, run and verify the plan without one"
	@echo "make test         everything that has to pass: the tests, and check beside them"
	@echo "make test-newest  the same with the newest version of every dependency; before a release"
	@echo "make test-oldest  the tests with the oldest version of every dependency; before a release"
	@echo "make check        formatting, lint, types, layering and unused definitions only"
	@echo "make format       rewrite the sources in the house format"
	@echo "make lock         choose versions for requirements-dev.lock: the newest, or with LOCK_ARGS= only what it lacks"
	@echo "make slow         all tests with all their random cases, and clean installs; takes hours"
	@echo "make fuzz         damaged PTX files, and property tests with new examples; takes hours"
	@echo "make bench        every benchmark that needs no GPU; takes hours, writes benchmarks/results"
	@echo "make bench-gpu    the benchmarks that need an NVIDIA GPU, torch and Triton"
	@echo "make corpus       compile the PTX corpus again; needs nvcc, ptxas, Triton and a package index"
	@echo "make clean        remove the environment, caches and build outputs"

setup: $(ready)

$(ready): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(python) \
	  || { $(PYTHON) -m venv $(VENV) && $(python) -m pip -qqq uninstall --yes setuptools; } \
	  || { rm -rf $(VENV); echo "error: this Python cannot make environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(install) --upgrade pip
	@$(install) --group dev
	@$(install) --no-build-isolation --editable '.$(if $(EXTRAS),[$(EXTRAS)])'
	@echo "$(LOCK)" > $(ready)

# uv chooses versions, in an environment of its own.
out/uv/bin/uv:
	@$(PYTHON) -m venv out/uv
	@out/uv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade uv

# Versions for every Python from 3.11 on in one file.
lock: out/uv/bin/uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" out/uv/bin/uv pip compile --quiet $(LOCK_ARGS) --universal \
	  --python-version 3.11 --no-annotate --group dev pyproject.toml --output-file $(LOCK)

demo: $(ready)
	@$(python) tools/demo.py

# Runs every part, whatever the others found; the last line names those that failed. What is named
# second runs beside the first, since it keeps one core busy, and is shown after it.
define run_each
	@folder=$$(mktemp -d); try() { $(MAKE) --no-print-directory $$1 || echo $$1 >> $$folder/failed; }; \
	{ for part in $(2); do try $$part; done; } > $$folder/beside 2>&1 & \
	for part in $(1); do try $$part; done; wait; cat $$folder/beside; \
	failed=$$(for part in $(2) $(1); do grep -sx "$$part" $$folder/failed; done | xargs); rm -r $$folder; \
	test -z "$$failed" \
	  || { echo "make $@: failed: $$failed (see above; make NAME runs one alone)" >&2; exit 1; }
endef

check: $(ready)
	$(call run_each,$(checks))

format-check: $(ready)
	$(python) -m ruff format --check .

lint: $(ready)
	$(python) -m ruff check .

format: $(ready)
	$(python) -m ruff format .
	$(python) -m ruff check --fix .

types: $(ready)
	$(python) -m mypy

imports: $(ready)
	$(VENV)/bin/lint-imports --no-cache --no-logo

dead: $(ready)
	$(python) tools/dead_definitions.py

test: $(ready)
	$(call run_each,pytest,$(checks))

test-newest:
	rm -rf out/newest
	$(MAKE) test VENV=out/newest LOCK=

test-oldest: out/uv/bin/uv
	rm -rf out/oldest
	out/uv/bin/uv pip compile --quiet --resolution lowest-direct --python $(PYTHON) --group dev \
	  --extra serve pyproject.toml --output-file out/oldest.lock
	$(MAKE) pytest VENV=out/oldest LOCK=out/oldest.lock EXTRAS=serve

pytest: $(ready)
	$(python) -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

slow: $(ready)
	HYPOTHESIS_PROFILE=slow $(python) -m pytest -q -m 'not gpu and not fuzz' $(PYTEST_ARGS)
	$(python) -m tests.sabotage draw --count 300 -o out/sabotage.drawn
	$(python) -m tests.sabotage run out/sabotage.drawn -o out/sabotage.jsonl --seconds 3600
	$(python) -m tests.sabotage show out/sabotage.jsonl

# Damaged files by two seeds, tests marked `fuzz`, then property tests with 2,000 new examples each.
fuzz: $(ready)
	$(python) -m tests.fuzz.ptx --cases 10000 --seed 1 --positions
	$(python) -m tests.fuzz.ptx --cases 10000 --seed $$(date +%j%H%M) --positions
	$(python) -m pytest -q -m 'fuzz and not gpu' $(PYTEST_ARGS)
	HYPOTHESIS_PROFILE=nightly $(python) -m pytest -q -m 'not gpu and not slow and not fuzz' tests/property tests/fuzz $(PYTEST_ARGS)

# benchmarks/README.md says what each of them answers; `python -m benchmarks GROUP` runs one group.
bench: $(ready)
	$(python) -m benchmarks all --no-gpu

bench-gpu: $(ready)
	$(python) -m benchmarks all --gpu

corpus: $(ready)
	$(python) -m benchmarks corpus

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
