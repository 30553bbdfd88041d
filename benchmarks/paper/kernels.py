"""The paper's figures 2 and 3: how long kinds of kernels take on different GPUs.

    python -m benchmarks.paper.kernels [-o FILE]

In: the steps of `examples/large`, measured tables (extra `tables`). Out: a JSON file with the time
of every kind of kernel of a step on each GPU, by what vLLM's kernels take, its source and the
largest error of it. Times that no table has are those of the model of data sheets.
"""

from __future__ import annotations

from collections import defaultdict

from benchmarks.common import LARGE, arguments, machine, write
from tessera.driver.fleet.make_fleet import offered_for
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.traces import load_traces
from tessera.frontend.machine import tables
from tessera.ir.plan.costs import Duration
from tessera.planning.prices.durations import find_costs

GPUS = ("a100", "l40s", "h100", "rtx-pro-6000", "b200")
STEPS = ("decode-b1", "decode-b128", "prefill-1024")
MODELS = {"gpt-oss-20b": STEPS, "llama-8b": ("decode-b1", "decode-b64", "prefill-1024")}


def kernel_times(step: str) -> dict[str, dict[str, list[object]]]:
    """By kernel and GPU: the time of all such launches of the step in us, its source, its error."""
    options = FleetOptions(gpus=",".join(GPUS), tokens=(1, 1), library="vllm")
    offered = offered_for(options)
    (costs,) = find_costs(
        load_traces([str(LARGE / f"{step}.ptx")]), offered.machine, options.as_plan(), []
    )
    made: dict[str, dict[str, list[object]]] = defaultdict(dict)
    for row in costs.steps:
        for gpu, cost in zip(GPUS, row.on_device, strict=True):
            assert isinstance(cost, Duration), row.name
            own = made[row.name].setdefault(gpu, [0.0, cost.source.value, 0.0])
            own[0] = float(str(own[0])) + cost.ns / 1e3
            own[2] = max(float(str(own[2])), cost.error)
    for by_gpu in made.values():
        for own in by_gpu.values():
            own[0], own[2] = round(float(str(own[0])), 2), round(float(str(own[2])), 3)
    return dict(sorted(made.items(), key=lambda item: -float(str(item[1][GPUS[0]][0]))))


def main() -> None:
    """Write the file."""
    parser = arguments(__doc__, "paper_kernels.json")
    given = parser.parse_args()
    if tables.extra_is_missing():
        parser.error(f"most tables are missing: {tables.INSTALL}")
    steps = [f"{model}-{step}" for model, own in MODELS.items() for step in own]
    data = {**machine(), "gpus": GPUS, "steps": {step: kernel_times(step) for step in steps}}
    write(data, given.output)


if __name__ == "__main__":
    main()
