"""What more copy queues per direction would bring: plans with one, and with no end of them.

    python -m benchmarks.planning.copy_queues -o benchmarks/results/copy_queues.json [--plans 54]

A request has one queue into each device and one out of it, so its transfers in one direction go one
after the other. Transfers of different requests do not wait for each other's queues. Here the same
launch programs are also simulated as if every transfer had a queue of its own: it waits for the
events before it in its queue, and for no transfer. No number of copy engines is faster than that
with these programs; links and ports are shared as before. Plans are splits of steps at real sizes
over two to four GPUs, as the search finds them and at random, for throughput and with one slot.
Goes on from its file.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.planning.real_traces import real_trace
from tessera.diagnostics import TesseraError
from tessera.driver.plan.make_plan import PlanOptions, plan
from tessera.driver.simulate.events import EventLoop
from tessera.driver.simulate.hardware import Hardware, hardware_of
from tessera.driver.simulate.intake import Coming, SimulatedReplica
from tessera.driver.simulate.simulate import replicas_of, shares_of
from tessera.driver.simulate.steady import Saturation
from tessera.driver.simulate.work import COMPUTE, NOTHING, RequestWork, _Builder
from tessera.ir.plan.launch_program import (
    Await,
    DeviceProgram,
    Fill,
    Free,
    Queue,
    Receive,
    Record,
    Run,
    Send,
)
from tessera.ir.plan.plan import Plan, Replica

_MODELS = (("llama-8b", "decode"), ("llama-8b", "prefill"), ("gpt-oss-20b", "decode"))
_MACHINES = (("a100,l40s", "100Gb/s"), ("2xa100,l40s", "pcie4"), ("2xa100,2xl40s", "100Gb/s"))
_WAYS = ({"strategy": "kernel"}, {"strategy": "layers"}, {"placement": "random:1"})
_LAYERS = 2


def cases() -> Iterator[dict[str, object]]:
    """Each model on each machine, placed in each way, with slots as they pay and with one."""
    for (model, phase), (gpus, link), way, slots in product(_MODELS, _MACHINES, _WAYS, (None, 1)):
        yield {"model": model, "phase": phase, "gpus": gpus, "link": link, **way, "slots": slots}


class _Apart(_Builder):
    """The work of a request whose transfers wait for events alone, not for each other."""

    def _add_program(self, program: DeviceProgram) -> None:
        last: dict[Queue, int | None] = dict.fromkeys(Queue)
        waits: dict[Queue, int | None] = dict.fromkeys(Queue)
        recorded: dict[int, int | None] = {}
        awaited: list[tuple[int, int]] = []
        for queued in program.operations:
            queue = queued.queue
            before = last[queue] if queue is Queue.COMPUTE else waits[queue]
            match queued.operation:
                case Record(event):
                    recorded[event] = last[queue]
                    continue
                case Free():
                    continue
                case Await(event):
                    node = waits[queue] = self._chain(before, self._add(NOTHING, 0.0, ()))
                    awaited.append((event, node))
                case Run(step):
                    node = self._chain(before, self._add_step(step, (program.device,)))
                    if step == self._lowered.gate:
                        self._gate = node
                case Fill(_, filled):
                    ns = self._fill_ns(program.device, filled)
                    node = self._chain(before, self._add(COMPUTE, ns, (program.device,)))
                case Send(number):
                    node = self._send(before, self._transfers[number])
                case Receive(number):
                    node = self._receive(before, self._transfers[number])
                case _:
                    raise ValueError("plans of several hosts are not meant here")
            last[queue] = node
        for event, waiter in awaited:
            first = recorded.get(event)
            if first is not None:
                self._edge(first, waiter)


Works = list[dict[int, RequestWork]]


def works(replicas: Sequence[Replica], hardware: Hardware, builder: type[_Builder]) -> Works:
    """The work of a request of every trace, on every replica."""
    return [
        {
            own.trace: builder(own, [step.times_ns for step in placed.steps], hardware).build()
            for placed, own in zip(replica.traces, replica.lowered.traces, strict=True)
        }
        for replica in replicas
    ]


def simulated(found: Plan, builder: type[_Builder]) -> tuple[float, float]:
    """The period, and the time of a request alone (of one replica and trace)."""
    hardware, replicas, shares = hardware_of(found), replicas_of(found, None), shares_of(found)
    assert hardware is not None
    made = works(replicas, hardware, builder)
    loop = EventLoop(
        [
            SimulatedReplica(
                work=made[0], slots=1, sequences=1, depth=1, coming=iter((Coming(0.0, 0, 0),))
            )
        ],
        hardware.capacities,
        hardware.neighbours,
    )
    loop.run()
    period = Saturation(replicas, made, shares, hardware).follow().period_ns
    return period, loop.traffic().ended_ns


def measure(case: dict[str, object], folder: Path) -> dict[str, object]:
    """One plan, with one queue per direction and with one for every transfer."""
    path = folder / "trace.ptx"
    phase = str(case["phase"])
    batch = 8 if phase == "decode" else 1
    path.write_text(real_trace(str(case["model"]), phase, batch=batch, layers=_LAYERS))
    names = ("gpus", "link", "strategy", "placement", "slots")
    options = PlanOptions(**{n: case[n] for n in names if case.get(n) is not None})  # type: ignore[arg-type]
    try:
        found = plan(path, options, compare=False).plan
    except TesseraError as fault:
        return {**case, "none": str(fault.diagnostics[0].headline)}
    (period, latency), (period_apart, latency_apart) = (
        simulated(found, builder) for builder in (_Builder, _Apart)
    )
    moved = sum(len(own.transfers) for r in found.replicas for own in r.lowered.traces)
    return {
        **case,
        "used_slots": found.replicas[0].slots,
        "transfers": moved,
        "rate_gain": round(period / period_apart - 1, 5),
        "latency_gain": round(latency / latency_apart - 1, 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--plans", type=int, default=1000)
    given = parser.parse_args()
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    for case in list(cases())[len(rows) : given.plans]:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(case, Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
        given.out.write_text(json.dumps(report(rows), indent=1) + "\n")


def report(rows: list[dict[str, object]]) -> dict[str, object]:
    """All rows, and what they come to for splits with so many GPUs and slots."""
    summary = []
    for gpus, slots in product(dict.fromkeys(str(row["gpus"]) for row in rows), (None, 1)):
        own = [r for r in rows if (r["gpus"], r["slots"]) == (gpus, slots) and r.get("transfers")]
        gains = {
            name: [float(str(row[name])) for row in own] for name in ("rate_gain", "latency_gain")
        }
        if own:
            line: dict[str, object] = {"gpus": gpus, "slots": slots, "plans": len(own)}
            for name, values in gains.items():
                line[name] = {"median": round(median(values), 4), "most": round(max(values), 4)}
            summary.append(line)
    return {"machine": platform.machine(), "layers": _LAYERS, "summary": summary, "rows": rows}


if __name__ == "__main__":
    main()
