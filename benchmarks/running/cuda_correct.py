"""Byte equality on GPUs: random placements over slices of a GPU against one device.

    python -m benchmarks.running.cuda_correct OUTPUT_FOLDER [--placements 50]

Every output of every request and every state of every lane must be equal to the byte to those of
the whole GPU, one request at a time. Guards lie round every group of places; every device must
launch something, and bytes must move between devices.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

from benchmarks.running.cuda_bench import (
    THREE,
    TWO,
    WHOLE,
    BenchModel,
    at_random,
    facts,
    on_one,
    requests,
    served,
    start,
    write,
)
from benchmarks.running.cuda_models import Sizes, build
from tessera.backend.service import Bytes, Completion
from tessera.ir.plan.launch_program import Queue

MODELS = {
    "mlp": Sizes(tokens=128, hidden=256, inner=512, layers=4),
    "prefill": Sizes(tokens=128, hidden=256, inner=512, layers=3, length=192),
    "decode": Sizes(hidden=256, inner=512, layers=3, length=96),
    "serving": Sizes(tokens=64, hidden=256, inner=512, layers=2, length=96),
    "moe": Sizes(tokens=256, hidden=256, inner=512, experts=6),
}
LANES = 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--placements", type=int, default=50)
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args()
    result: dict[str, object] = {"machine": facts(), "placements_each": arguments.placements}
    for name in arguments.models.split(","):
        model = build(name, MODELS[name])
        result[name] = check_model(model, arguments.placements)
        print(name, result[name], flush=True)
        write(arguments.folder, "cuda_correct.json", result)


def check_model(
    model: BenchModel, placements: int, *, lanes: int = LANES, count: int = 24
) -> dict[str, object]:
    """All placements of a model on two and three slices."""
    traces = len(model.programs)
    plan = [(i % traces, (i // traces) % lanes) for i in range(count)]
    whole = start(served(model, on_one(model), 1, lanes), WHOLE)
    wanted = requests(whole, model, plan, 1, lanes)
    found: dict[str, object] = {
        "steps": [len(g.nodes) for g in model.graphs],
        "requests": len(plan),
    }
    for label, targets in (("two_slices", TWO), ("three_slices", THREE)):
        begun = time.perf_counter()
        moved = wrong = 0
        for seed in range(placements):
            slots = seed % 8 + 1
            places = at_random(model, tuple(targets), seed)
            backend = start(
                served(model, places, slots, lanes),
                targets,
                timeline=True,
                graphs=seed % 5 != 4,
                guard_bytes=256,
            )
            done, states = requests(backend, model, plan, slots, lanes)
            moved += check_work(done, targets)
            wrong += not same(wanted, (done, states))
        found[label] = {
            "placements": placements,
            "different": wrong,
            "bytes_between_devices": moved,
            "seconds": round(time.perf_counter() - begun, 1),
            "slots": "1 to 8",
        }
        assert not wrong, f"{model.name}: {wrong} placements differ"
    return found


def check_work(done: Sequence[Completion], targets: Mapping[str, str]) -> int:
    """Every device launched something, in the requests together; bytes moved between them."""
    events = [event for one in done for event in one.events]
    for device in targets:
        assert any(e.device == device and e.queue is Queue.COMPUTE for e in events), device
    moved = sum(e.bytes for e in events if e.queue is Queue.OUT and e.peer in targets)
    assert moved
    return moved


Result = tuple[list[Completion], list[Mapping[str, Bytes]]]


def same(wanted: Result, found: Result) -> bool:
    """Whether all outputs and states are equal to the byte."""
    for one, other in zip(wanted[0], found[0], strict=True):
        if any(
            one.outputs[name].tobytes() != other.outputs[name].tobytes() for name in one.outputs
        ):
            return False
    return all(
        one[name].tobytes() == other[name].tobytes()
        for one, other in zip(wanted[1], found[1], strict=True)
        for name in one
    )


if __name__ == "__main__":
    main()
