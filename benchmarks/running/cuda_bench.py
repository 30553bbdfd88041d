"""What the GPU benchmarks share: models on the backend, requests through it, facts for the JSON."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.cuda.targets import open_driver
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions, Bytes, Completion, Model, ServedTrace
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import Program
from tessera.planning.lower.lower_plan import lower_replica
from tessera.planning.prices.estimate_costs import variant_on


class BenchModel(Protocol):
    """Traces that share weights and states, with their graphs and contents."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """The traces."""

    @property
    def graphs(self) -> tuple[KernelGraph, ...]:
        """What depends on what in each."""

    def weights(self) -> Mapping[str, Bytes]:
        """By buffer."""

    def states(self, lane: int) -> Mapping[str, Bytes]:
        """What a lane begins with, by buffer."""

    def inputs(self, trace: int, request: int) -> dict[str, Bytes]:
        """Those of a request."""


WHOLE = {"gpu": "cuda:0"}
TWO = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}
THREE = {"a": "cuda:0:64sm", "b": "cuda:0:40sm", "c": "cuda:0:24sm"}


def served(model: BenchModel, placements: Sequence[Sequence[str]], slots: int, lanes: int) -> Model:
    """A replica of a model; every kernel is the newest code that a Hopper GPU runs."""
    traces = []
    for program in model.programs:
        arches = tuple(variant_on(program, step, find_gpu("h200")) for step in program.work())
        traces.append(ServedTrace(name=model.name, program=program, arches=arches))
    return Model(
        lowered=lower_replica(model.programs, model.graphs, placements, slots=slots, lanes=lanes),
        traces=tuple(traces),
        weights=model.weights(),
        states=[model.states(lane) for lane in range(lanes)],
        fillings=[{} for _ in traces],
    )


def on_one(model: BenchModel, device: str = "gpu") -> list[list[str]]:
    """Every step on one device."""
    return [[device for _ in program.work()] for program in model.programs]


def at_random(model: BenchModel, devices: Sequence[str], seed: int) -> list[list[str]]:
    """A random device per step; every device gets a step of every trace."""
    rng = random.Random(seed)
    found = []
    for program in model.programs:
        steps = [rng.choice(devices) for _ in program.work()]
        for device, step in zip(devices, rng.sample(range(len(steps)), len(devices)), strict=True):
            steps[step] = device
        found.append(steps)
    return found


def start(
    model: Model,
    targets: Mapping[str, str],
    *,
    timeline: bool = False,
    throttle: float | None = None,
    **options: Any,
) -> CudaBackend:
    """The backend on these targets."""
    return CudaBackend(
        model,
        BackendOptions(targets=targets, timeline=timeline, throttle_bytes_per_s=throttle),
        cuda=CudaOptions(**options),
    )


def requests(
    backend: CudaBackend, model: BenchModel, plan: Sequence[tuple[int, int]], slots: int, lanes: int
) -> tuple[list[Completion], list[Mapping[str, Bytes]]]:
    """Requests (trace, lane) in order, then the states of all lanes; the backend stays open."""
    dispatcher = Dispatcher(backend, slots=slots, lanes=lanes)
    futures = [
        dispatcher.submit(model.inputs(trace, number), trace=trace, lane=lane)
        for number, (trace, lane) in enumerate(plan)
    ]
    done = [future.result(60) for future in futures]
    states = [dispatcher.read_states(lane) for lane in range(lanes)]
    if backend.replica.memory is not None:
        backend.replica.memory.check_guards()
    dispatcher.close()
    return done, states


def facts() -> dict[str, object]:
    """Which machine and code this is."""
    driver = open_driver()
    driver.retain(0)  # contexts of the runs that follow are then made only once
    gpu = driver.gpus()[0]
    version = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+\.\d+", version.read_text()) if version.exists() else None
    return {
        "device": gpu.name,
        "sms": gpu.sms,
        "cuda": driver.version(),
        "driver": found[0] if found else "",
        "when": time.strftime("%Y-%m-%d"),
    }


def write(path: str, name: str, result: dict[str, object]) -> None:
    """One JSON file in the folder."""
    Path(path).mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, sort_keys=True) + "\n"
    (Path(path) / name).write_text(text)
