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
	@echo "make test         everything that has to pass: check, then the tests, whatever check found"
	@echo "make test-newest  the same with the newest version of every dependency; before a release"
	@echo "make test-oldest  the tests with the oldest version of every dependency; before a release"
	@echo "make check        formatting, lint, types, layering and unused definitions only"
	@echo "make format       rewrite the sources in the house format"
	@echo "make lock         choose versions for requirements-dev.lock: the newest, or with LOCK_ARGS= only what it lacks"
	@echo "make slow         the tests that are off by default: clean installs, many random cases"
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

demo_model := $(addprefix examples/large/llama-8b-,decode-b1.ptx decode-b64.ptx decode-b256.ptx prefill-1024.ptx)
demo: $(ready)
	@mkdir -p out && rm -f out/dit.npz out/dit.timeline.json
	@echo "--- analyse: what each launch of a diffusion transformer reads, writes and waits for"
	$(python) -m tessera analyze examples/traces/dit.ptx --no-graph
	@echo "--- plan: which of its kernels run on an A100 and which on an L40S"
	$(python) -m tessera plan examples/traces/dit.ptx --gpus a100,l40s --strategy kernel -o out/dit.tsp
	@echo "--- run: both GPUs as processes of this machine, four requests in flight, verified"
	$(python) -m tessera run out/dit.tsp --data examples/traces/dit.npz --backend cpu --requests 6 --verify --outputs out/dit.npz --timeline out/dit.timeline.json
	@echo "--- report: all of it on one page"
	$(python) -m tessera report out/dit.tsp out/dit.timeline.json -o out/dit.html
	@echo "--- fleet: Llama 3 8B at its real size, 20 requests a second: which GPUs to rent, and how to use them"
	$(python) -m tessera fleet $(demo_model) --gpus a100,l40s --tokens 1024:256 --demand 20/s --strategies single,layers,phase,attention
	@echo "--- open out/dit.html in a browser; out/dit.timeline.json also opens at https://ui.perfetto.dev"

# Runs every part, whatever the parts before it found; the last line names those that failed.
define run_each
	@failed=; for part in $(1); do \
	  $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	test -z "$$failed" \
	  || { echo "make $@: failed:$$failed (see above; make NAME runs one alone)" >&2; exit 1; }
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
	$(call run_each,$(checks) pytest)

test-newest:
	rm -rf out/newest
	$(MAKE) test VENV=out/newest LOCK=

test-oldest: out/uv/bin/uv
	rm -rf out/oldest
	out/uv/bin/uv pip compile --quiet --resolution lowest-direct --python $(PYTHON) --group dev \
	  --extra serve pyproject.toml --output-file out/oldest.lock
	$(MAKE) pytest VENV=out/oldest LOCK=out/oldest.lock EXTRAS=serve

pytest: $(ready)
	$(python) -m pytest -q -n $(PYTEST_WORKERS) $(PYTEST_ARGS)

slow: $(ready)
	$(python) -m pytest -q -m 'slow and not gpu' $(PYTEST_ARGS)

# Damaged files by two seeds, tests marked `fuzz`, then property tests with 2,000 new examples each.
fuzz: $(ready)
	$(python) -m tests.fuzz.ptx --cases 10000 --seed 1 --positions
	$(python) -m tests.fuzz.ptx --cases 10000 --seed $$(date +%j%H%M) --positions
	$(python) -m pytest -q -m 'fuzz and not gpu' $(PYTEST_ARGS)
	HYPOTHESIS_PROFILE=nightly $(python) -m pytest -q -m 'not gpu and not slow and not fuzz' tests/property tests/fuzz $(PYTEST_ARGS)

# Each writes the file under benchmarks/results that README quotes, or prints what it found. Those
# that fail where PTX is read wrongly come last; faults, opcodes and roundtrip ask ptxas.
results := benchmarks/results
bench: $(ready)
	@mkdir -p out
	$(python) -m benchmarks.reading.parse
	$(python) -m benchmarks.reading.traces --out $(results)/trace_read.json
	$(python) -m benchmarks.reading.startup
	$(python) -m benchmarks.analysis.graph_library
	$(python) -m benchmarks.analysis.analyze
	$(python) -m benchmarks.analysis.grid_size
	$(python) -m benchmarks.analysis.tightness
	$(python) -m benchmarks.analysis.zoo
	$(python) -m benchmarks.prediction.tables -o $(results)/tables.json
	$(python) -m benchmarks.prediction.fit_durations $(results)/h200_rows.jsonl.xz --folds family rows -o $(results)/fit_durations.json
	$(python) -m benchmarks.prediction.direction -o $(results)/direction.json
	$(python) -m benchmarks.planning.planner --many -o $(results)/planner.json
	$(python) -m benchmarks.planning.plan_scale --out $(results)/plan_scale.json
	$(python) -m benchmarks.planning.check_plan
	$(python) -m benchmarks.running.cpu
	$(python) -m benchmarks.planning.promises -o $(results)/promises.json
	$(python) -m benchmarks.prediction.simulated_cpu --scale 2
	test -z "$(ARRIVALS)" || $(python) -m benchmarks.serving.simulation $(ARRIVALS) -o $(results)/serving_simulation.json
	$(python) -m benchmarks.serving.switching_stall -o $(results)/switching_stall.json
	$(python) -m benchmarks.serving.simulated_cpu -o $(results)/serving_simulated_cpu.json
	$(python) -m benchmarks.serving.serve_clients -o $(results)/serve_clients.json
	test -z "$(TRACES)" || $(python) -m benchmarks.serving.adaptation $(TRACES) --choose --requests 1500 -o $(results)/adaptation_choice.json
	test -z "$(TRACES)" || $(python) -m benchmarks.serving.adaptation $(TRACES) --rules $(results)/adaptation_choice.json -o $(results)/adaptation.json
	test -z "$(TRACES)" || $(python) -m benchmarks.serving.adaptation $(TRACES) --sweep --requests 2000 -o $(results)/adaptation_sweep.json
	test -z "$(TRACES)" || $(python) -m benchmarks.serving.adaptation_page
	$(python) -m benchmarks.running.host_time
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.placements run -o out/placements.jsonl
	test "$$(id -u)" != 0 || UCX_TLS=tcp $(python) -m benchmarks.hosts.placements run --transport nixl -o out/nixl.jsonl
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.placements report out/nixl.jsonl -o $(results)/hosts_nixl.json
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.placements many --count 4 -o out/many.jsonl
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.placements report out/placements.jsonl out/many.jsonl -o $(results)/hosts.json
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.faults run -o out/host_faults.jsonl
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.faults report out/host_faults.jsonl -o $(results)/host_faults.json
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.fresh_faults run -o out/host_faults_fresh.jsonl
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.fresh_faults report out/host_faults_fresh.jsonl -o $(results)/host_faults_fresh.json
	test "$$(id -u)" != 0 || $(python) -m benchmarks.hosts.links
	$(python) -m benchmarks.laptop.no_gpu -o out/no_gpu.json --work out/no_gpu
	$(python) -m benchmarks.laptop.second_capture
	$(python) -m benchmarks.planning.serving_traces
	$(python) -m benchmarks.planning.fleets -o $(results)/fleets.json
	$(python) -m benchmarks.paper.figures run -o $(results)/paper.json
	$(python) -m benchmarks.paper.figures plans -o $(results)/paper.json
	$(python) -m benchmarks.paper.figures show $(results)/paper.json
	$(python) -m benchmarks.planning.homogeneous theirs -o $(results)/homogeneous.json
	$(python) -m benchmarks.planning.homogeneous ours -o $(results)/homogeneous.json
	$(python) -m benchmarks.planning.homogeneous compare -o $(results)/homogeneous.json
	$(python) -m benchmarks.reading.accept
	$(python) -m benchmarks.reading.faults plant out/faults.jsonl --per-kind 3
	$(python) -m benchmarks.reading.faults check out/faults.jsonl
	$(python) -m benchmarks.reading.opcodes
	$(python) -m benchmarks.reading.roundtrip benchmarks/corpus/corpus.tar.xz --json out/roundtrip.json

# Files land in out/gpu; copy the JSON files that should be kept to benchmarks/results.
gpu := out/gpu
bench-gpu: $(ready)
	@mkdir -p $(gpu)
	$(python) -m benchmarks.running.capture $(gpu)/capture
	$(python) -m benchmarks.running.replay_zoo $(gpu)/replay
	$(python) -m benchmarks.running.attention -o $(gpu)/attention.json
	$(python) -m benchmarks.laptop.meta_against_gpu -o $(gpu)/meta_against_gpu.json --work $(gpu)/meta
	$(python) -m benchmarks.laptop.no_gpu_against_gpu -o $(gpu)/no_gpu_against_gpu.json --work $(gpu)/no_gpu
	$(python) -m benchmarks.running.real_models run --out $(gpu)/real --seconds 3000
	$(python) -m benchmarks.running.real_models report --out $(gpu)/real -o $(gpu)/real_models.json
	$(python) -m benchmarks.gain.real $(gpu)/gain_real --seconds 3000 -o $(gpu)/gain_real.json
	$(python) -m benchmarks.gain.bound $(gpu)/gain_real_inputs.tar.xz -o $(gpu)/gain_bound.json
	$(python) -m benchmarks.laptop.unprepared -o $(gpu)/unprepared.json --work $(gpu)/unprepared --seconds 1800
	$(python) -m benchmarks.laptop.unprepared -o $(gpu)/unprepared_cpu.json --work $(gpu)/unprepared --cpu --seconds 1800
	test -z "$(ARRIVALS)" || $(python) -m benchmarks.serving.h200 prepare --work $(gpu)/h200 --arrivals $(ARRIVALS) --seconds 3000
	test -z "$(ARRIVALS)" || $(python) -m benchmarks.serving.h200 run --work $(gpu)/h200 --out $(gpu)/serving_h200
	$(python) -m benchmarks.running.full_size $(gpu)/full_size.json --work $(gpu)/full_size
	$(python) -m benchmarks.running.full_size $(gpu)/full_size_olmoe.json --work $(gpu)/olmoe --model olmoe
	$(python) -m benchmarks.running.cuda_correct $(gpu)/correct
	$(python) -m benchmarks.hosts.gpu --seconds 900 -o $(gpu)/hosts_gpu.jsonl
	$(python) -m benchmarks.hosts.gpu report $(gpu)/hosts_gpu.jsonl -o $(results)/hosts_gpu.json
	$(python) -m benchmarks.running.cuda_overhead $(gpu)/overhead
	$(python) -m benchmarks.running.cuda_pipeline $(gpu)/pipeline
	$(python) -m benchmarks.prediction.profile_repeat $(gpu)/profile
	$(python) -m benchmarks.prediction.h200_rows --out $(gpu)/rows
	$(python) -m benchmarks.prediction.simulated_h200 profile --work $(gpu)/simulated
	$(python) -m benchmarks.prediction.simulated_h200 plan --work $(gpu)/simulated
	$(python) -m benchmarks.prediction.simulated_h200 run --work $(gpu)/simulated
	$(python) -m benchmarks.prediction.predicted_step measure -o $(results)/predicted_step.json
	$(python) -m benchmarks.prediction.predicted_step predict -o $(results)/predicted_step.json
	$(python) -m benchmarks.prediction.whole_steps measure --out $(gpu)/whole
	$(python) -m benchmarks.prediction.whole_steps keep --out $(gpu)/whole
	$(python) -m benchmarks.prediction.whole_steps compare --made -o $(results)/whole_steps.json

corpus: $(ready)
	$(python) -m benchmarks.reading.corpus_build --pack
	$(python) -m benchmarks.reading.corpus_functions --pack
	$(python) -m benchmarks.prediction.h200_cases $(results)/h200_cases.json.xz
	$(python) -m benchmarks.prediction.h200_models out/h200_models

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
