"""The commands of all benchmarks, by group, and what each of them needs.

Commands run in this order: what a stage leaves in `out` is there for the next. Files whose name
begins with `out/gpu` are kept by hand: copy to `benchmarks/results` what the docs should quote.
"""

from __future__ import annotations

import enum
import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = "benchmarks/results"


class Need(enum.Enum):
    """Something that not every machine has."""

    GPU = "an NVIDIA GPU and cuda-bindings"
    TORCH = "torch, Triton and transformers"
    PTXAS = "ptxas"
    NVCC = "nvcc, and a package index"
    ROOT = "root, and the commands ip and tc"
    TABLES = "the extra tables"
    ARRIVALS = "ARRIVALS: a file of arrivals, such as the Azure conversation trace"
    TRACES = "TRACES: a folder with both Azure traces"

    def is_met(self) -> bool:
        """Whether this machine meets the need."""
        match self:
            case Need.GPU:
                return Path("/dev/nvidiactl").exists() and bool(importlib.util.find_spec("cuda"))
            case Need.TORCH:
                return all(map(importlib.util.find_spec, ("torch", "triton", "transformers")))
            case Need.PTXAS:
                return bool(shutil.which("ptxas") or os.environ.get("TESSERA_PTXAS"))
            case Need.NVCC:
                return shutil.which("nvcc") is not None
            case Need.ROOT:
                return os.geteuid() == 0 and bool(shutil.which("ip") and shutil.which("tc"))
            case Need.TABLES:
                return bool(importlib.util.find_spec("aiconfigurator_core"))
            case Need.ARRIVALS | Need.TRACES:
                return bool(os.environ.get(self.name))


@dataclass(frozen=True, slots=True)
class Run:
    """A command: a module below `benchmarks` and its words; `$NAME` is a variable."""

    command: str
    needs: tuple[Need, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        return Need.GPU in self.needs

    @property
    def module(self) -> str:
        """The script, without `benchmarks`."""
        return self.command.split()[0]

    def words(self) -> list[str]:
        """The arguments of Python after `-m`."""
        return [f"benchmarks.{self.module}", *map(os.path.expandvars, self.command.split()[1:])]

    def missing(self) -> list[str]:
        """The needs that this machine does not meet."""
        return [need.value for need in self.needs if not need.is_met()]


GPU, TORCH, PTXAS, ROOT = (Need.GPU,), (Need.TORCH,), (Need.PTXAS,), (Need.ROOT,)
BOTH = GPU + TORCH

# What fails where PTX is read wrongly comes last.
READING = (
    Run("reading.parse", PTXAS),
    Run("reading.check_speed", PTXAS),
    Run("reading.traces"),
    Run("reading.startup"),
    Run("reading.accept"),
    Run("reading.verdicts plant out/faults.jsonl --per-kind 3", PTXAS),
    Run("reading.verdicts check out/faults.jsonl", PTXAS),
    Run("reading.two_trees", PTXAS),
    Run("reading.known"),
    Run("reading.roundtrip benchmarks/corpus/corpus.tar.xz -o out/roundtrip.json", PTXAS),
)
# Inputs that others read: no part of `all`, because archives change with every compiler.
CORPUS = (
    Run("reading.corpus_build --pack", (Need.NVCC, *PTXAS)),
    Run("reading.corpus_build --functions --pack", (Need.NVCC, *PTXAS)),
    Run(f"prediction.h200_cases {RESULTS}/h200_cases.json.xz", TORCH),
    Run("prediction.h200_models", TORCH),
)
ANALYSIS = (
    Run("analysis.analyze", PTXAS),
    Run("analysis.tightness"),
    Run("analysis.certificates"),
)
PLANNING = (
    Run("planning.planner --many"),
    Run("planning.plan_scale"),
    Run("planning.plan_changes"),
    Run("planning.promises"),
    # Writes `examples/large`; a test compares.
    Run("planning.serving_traces"),
    Run("planning.fleets"),
    Run("planning.parts"),
    Run("planning.homogeneous theirs", (Need.TABLES,)),
    Run("planning.homogeneous ours", (Need.TABLES,)),
    Run("planning.homogeneous compare", (Need.TABLES,)),
)
PREDICTION = (
    Run("prediction.tables"),
    Run("prediction.all_reduce", (Need.TABLES,)),
    Run(f"prediction.fit_durations {RESULTS}/h200_rows.jsonl.xz --folds family rows"),
    Run("prediction.experts", (Need.TABLES,)),
    Run("prediction.floors"),
    Run("prediction.direction"),
    Run("prediction.libraries", (Need.TABLES,)),
    Run("prediction.held_out", (Need.TABLES,)),
    Run("prediction.narrow_products", (Need.TABLES,)),
    Run("prediction.model_bars", (Need.TABLES,)),
    Run("prediction.simulated_cpu --scale 2"),
    # Rows that the duration model is fitted to: keep them only with a new fit.
    Run("prediction.h200_rows --out out/gpu/rows", BOTH),
    Run("prediction.simulated_h200 profile --work out/gpu/simulated", GPU),
    Run("prediction.simulated_h200 plan --work out/gpu/simulated", GPU),
    Run("prediction.simulated_h200 run --work out/gpu/simulated", GPU),
    Run(
        "prediction.simulated_h200 report --work out/gpu/simulated -o out/gpu/simulated_h200.json",
        GPU,
    ),
    Run("prediction.predicted_step measure", BOTH),
    Run("prediction.predicted_step predict", (*TORCH, Need.TABLES)),
    Run("prediction.h200_experts -o out/gpu/h200_experts.json", BOTH),
    Run("prediction.unseen_steps capture --work out/gpu/unseen -o out/gpu/unseen.json", BOTH),
    Run("prediction.unseen_steps predict --work out/gpu/unseen"),
    Run("prediction.unseen_steps measure --work out/gpu/unseen -o out/gpu/measured.json", BOTH),
    Run("prediction.unseen_steps compare --work out/gpu/unseen"),
    Run("prediction.profiled_steps predict --work out/gpu/profiled"),
    Run("prediction.profiled_steps measure --work out/gpu/profiled -o out/gpu/p.json", BOTH),
    Run("prediction.profiled_steps compare --work out/gpu/profiled"),
    Run("prediction.profiled_runs measure --work out/gpu/runs -o out/gpu/promised.json", BOTH),
    Run("prediction.profiled_runs run --work out/gpu/runs -o out/gpu/ran.json", BOTH),
    Run(
        "prediction.profiled_runs compare --work out/gpu/runs"
        " --from out/gpu/promised.json out/gpu/ran.json -o out/gpu/profiled_runs.json",
        GPU,
    ),
    Run("prediction.derived_steps", TORCH),
)
RUNNING = (
    Run("running.cpu"),
    Run("running.host_time"),
    Run("running.capture out/gpu/capture", BOTH),
    Run("running.real_models -o out/gpu/real_models.json --work out/gpu/real", BOTH),
    Run("running.full_size out/gpu/full_size.json --work out/gpu/full_size", BOTH),
    Run("running.full_size out/gpu/full_olmoe.json --work out/gpu/olmoe --model olmoe", BOTH),
    Run("running.cuda_correct out/gpu/correct", GPU),
    Run("running.cuda_overhead out/gpu/overhead", GPU),
    Run("running.cuda_pipeline out/gpu/pipeline", GPU),
    Run("running.divided_h200 -o out/gpu/divided_h200.json", GPU),
)
GAIN = (
    Run("gain.bound benchmarks/results/gain_real_inputs.tar.xz -o out/gain_bound.json"),
    Run("gain.program run"),
    Run("gain.program small"),
    Run("gain.picture"),
    Run("gain.real out/gpu/gain_real --seconds 3000 -o out/gpu/gain_real.json", BOTH),
)
SERVING = (
    Run("serving.switching_stall"),
    Run("serving.simulated_steps pace"),
    Run("serving.simulated_steps prefixes"),
    Run("serving.host_gaps"),
    Run("serving.architectures", (Need.TORCH,)),
    Run("serving.simulated_cpu"),
    Run("serving.serve_clients"),
    Run("serving.soak --work out/soak", (Need.TORCH,)),
    Run("serving.simulation $ARRIVALS", (Need.ARRIVALS,)),
    Run(
        f"serving.adaptation $TRACES --choose --requests 1500 -o {RESULTS}/adaptation_choice.json",
        (Need.TRACES,),
    ),
    Run(
        f"serving.adaptation $TRACES --rules {RESULTS}/adaptation_choice.json",
        (Need.TRACES,),
    ),
    Run(
        f"serving.adaptation $TRACES --sweep --requests 2000 -o {RESULTS}/adaptation_sweep.json",
        (Need.TRACES,),
    ),
    Run("serving.adaptation_page", (Need.TRACES,)),
    Run(
        f"serving.folder_kinds --work out/gpu/kinds -o {RESULTS}/serving_folder_kinds.json",
        BOTH,
    ),
    Run("serving.folder_deaths prepare --work out/gpu/deaths", (Need.TORCH,)),
    Run(
        f"serving.folder_deaths run --work out/gpu/deaths -o {RESULTS}/serving_folder_deaths.json",
        BOTH,
    ),
    Run("serving.folder_h200 prepare --work out/gpu/folder", (Need.TORCH,)),
    Run(
        f"serving.folder_h200 run --work out/gpu/folder -o {RESULTS}/serving_folder_h200.json",
        BOTH,
    ),
    Run(
        "serving.h200 prepare --work out/gpu/h200 --arrivals $ARRIVALS --seconds 3000",
        (*BOTH, Need.ARRIVALS),
    ),
    Run(
        "serving.h200 run --work out/gpu/h200 -o out/gpu/serving_h200.json", (*BOTH, Need.ARRIVALS)
    ),
    Run("serving.roles_h200 prepare --work out/gpu/roles", BOTH),
    Run("serving.roles_h200 run --work out/gpu/roles -o out/gpu/serving_roles_h200.json", BOTH),
)
HOSTS = (
    Run("hosts.placements run -o out/placements.jsonl", ROOT),
    Run("hosts.placements many --count 4 -o out/many.jsonl", ROOT),
    Run(
        f"hosts.placements report out/placements.jsonl out/many.jsonl -o {RESULTS}/hosts.json", ROOT
    ),
    # Between namespaces of one machine UCX would take shared memory.
    Run("hosts.placements run --transport nixl -o out/nixl.jsonl", ROOT, {"UCX_TLS": "tcp"}),
    Run(f"hosts.placements report out/nixl.jsonl -o {RESULTS}/hosts_nixl.json", ROOT),
    Run("hosts.faults run -o out/host_faults.jsonl", ROOT),
    Run(f"hosts.faults report out/host_faults.jsonl -o {RESULTS}/host_faults.json", ROOT),
    Run("hosts.fresh_faults run -o out/fresh_faults.jsonl", ROOT),
    Run(
        f"hosts.fresh_faults report out/fresh_faults.jsonl -o {RESULTS}/host_faults_fresh.json",
        ROOT,
    ),
    Run("hosts.gpu run --seconds 900 -o out/gpu/hosts_gpu.jsonl", GPU),
    Run("hosts.gpu report out/gpu/hosts_gpu.jsonl -o out/gpu/hosts_gpu.json", GPU),
    Run("hosts.speed -o out/gpu/process_speed.json", GPU),
)
LAPTOP = (
    Run("laptop.no_gpu -o out/no_gpu.json --work out/no_gpu", TORCH),
    Run("running.divided_models -o out/divided_models.json --work out/divided", TORCH),
    Run("laptop.second_capture", TORCH),
    Run("laptop.unprepared -o out/gpu/unprepared.json --work out/gpu/unprepared", BOTH),
    Run("laptop.meta_against_gpu -o out/gpu/meta_against_gpu.json --work out/gpu/meta", BOTH),
    Run("laptop.no_gpu_against_gpu -o out/gpu/no_gpu_against_gpu.json --work out/gpu/none", BOTH),
)
PAPER = (
    Run("paper.figures run", (Need.TABLES,)),
    Run("paper.kernels", (Need.TABLES,)),
    Run("paper.clusters", (Need.TABLES,)),
    # Writes the page of the docs from the files, so that it needs no tables.
    Run("paper.figures show"),
)
GROUPS: Mapping[str, tuple[Run, ...]] = {
    "reading": READING,
    "corpus": CORPUS,
    "analysis": ANALYSIS,
    "planning": PLANNING,
    "prediction": PREDICTION,
    "running": RUNNING,
    "gain": GAIN,
    "serving": SERVING,
    "hosts": HOSTS,
    "laptop": LAPTOP,
    "paper": PAPER,
}
# Scripts that another one starts.
STARTED_BY = {
    "gain.run": "gain.real",
    "planning.real_traces": "planning.promises",
    "prediction.h200_library": "prediction.h200_rows",
    "running.sampled": "running.full_size",
    "serving.http_load": "serving.folder_h200",
}
