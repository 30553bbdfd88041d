"""The rate of a plan of a mix, without stamps of the clock between its steps; then what ran when.

    python -m benchmarks.gain.run PLAN --requests 300 [--of-a-mix 3] [--backend cuda] [--map MAP]
                                  [--weights FOLDER] [--timeline FILE.json.xz] [--events 30]
                                  [--spanning yes|no]

Starts requests of a plan back to back, as `tessc run` does, but without its stamps: a kernel of one
thread after every step, which takes longer than many a step of a slice. The rate is the slope of
how many requests have ended over time, without the first and the last, while not all slots have
work; `with_ends_us` is from the first beginning to the last end. Requests are rounded up until all
sequences have had whole mixes. With `--timeline` as many as `--events` are run once more, with
stamps, and what every device did when is written in columns: device, queue, slot, request and
step by number, begin and length in nanoseconds. Prints JSON: microseconds for one mix, and the
median of a request. `--spanning`: requests over slices are one graph, or rows of graphs, whatever
the backend would choose.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tessera.backend.cuda import replica as cuda_replica
from tessera.backend.cuda.options import CudaOptions
from tessera.backend.service import Completion
from tessera.driver.run.digests import Digests
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.run_plan import Prepared, prepare_run, run_prepared
from tessera.driver.run.schedule import Turn, schedule
from tessera.ir.plan.launch_program import Queue

COLUMNS = ("device", "queue", "slot", "request", "step", "start_ns", "took_ns", "bytes")
QUEUES = (Queue.COMPUTE, Queue.IN, Queue.OUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan")
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--of-a-mix", type=int, default=1, help="requests that a mix has")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--map", default=None)
    parser.add_argument("--weights", default=None)
    parser.add_argument("--timeline", type=Path)
    parser.add_argument("--events", type=int, default=30, help="requests of the timeline")
    parser.add_argument("--spanning", choices=("yes", "no"))
    given = parser.parse_args()
    Digests.take = drop_outputs  # type: ignore[method-assign]
    if given.spanning:
        options_of = partial(CudaOptions, spanning=given.spanning == "yes")
        cuda_replica.__dict__["CudaOptions"] = options_of
    options = PlanRunOptions(
        requests=given.requests,
        backend=given.backend,
        targets=given.map,
        weights=given.weights,
        timeline=False,
    )
    prepared = prepare_run(given.plan, options)
    replicas = prepared.opened.replicas
    lanes = sum(replica.lowered.lanes for replica in replicas)
    slots = sum(replica.lowered.slots for replica in replicas)
    outcome = ran(prepared, whole_mixes(given.requests, given.of_a_mix * lanes))
    row: dict[str, Any] = {
        **rate(outcome, given.of_a_mix, 2 * slots),
        "slots": [replica.lowered.slots for replica in replicas],
        "gates": [trace.gate for replica in replicas for trace in replica.lowered.traces],
        "done": [sum(turn.trace == trace for turn in outcome.turns) for trace in traces(outcome)],
    }
    if given.timeline is not None:
        stamped = replace(prepared, options=replace(options, timeline=True))
        marked = ran(stamped, whole_mixes(given.events, given.of_a_mix * lanes))
        given.timeline.write_bytes(lzma.compress(json.dumps(columns(marked)).encode()))
        row["stamped"] = rate(marked, given.of_a_mix, 0) | {"busy": dict(marked.figures().busy)}
    print(json.dumps(row))


def drop_outputs(digests: Digests, completion: Completion) -> Completion:
    """A completion without its outputs, which nobody looks at."""
    return replace(completion, outputs={})


def traces(outcome: Outcome) -> range:
    """The numbers of a plan's traces."""
    return range(len(outcome.opened.plan.traces))


def whole_mixes(requests: int, round_of_all: int) -> int:
    """The number of requests, rounded up until every sequence has whole mixes.

    It is not rounded up to more than twice: then not all sequences have a turn.
    """
    return requests if round_of_all > 2 * requests else -(-requests // round_of_all) * round_of_all


def ran(prepared: Prepared, requests: int) -> Outcome:
    """Run requests; a fault is an error."""
    opened = prepared.opened
    turns: Sequence[Turn] = schedule(
        requests,
        shares := [trace.share for trace in opened.plan.traces],
        [(replica.share, replica.lowered.lanes) for replica in opened.replicas],
        [replica.own_shares(shares) for replica in opened.replicas],
    )
    # Outputs that are kept or still digested need fresh memory, whose pages take the host longer
    # than copies; the host would be the limit of plans with large outputs.
    outcome = run_prepared(replace(prepared, turns=tuple(turns)), keep_outputs=False)
    if outcome.fault:
        raise RuntimeError(str(outcome.fault[0].headline))
    return outcome


def rate(outcome: Outcome, of_a_mix: int, ends: int) -> dict[str, float]:
    """Microseconds for one mix: in the middle of a run, and of all of it."""
    done = outcome.done.values()
    first, last = min(one.started_ns for one in done), max(one.ended_ns for one in done)
    # Between batches of requests the devices wait for inputs, which is no time of the plan.
    bounds = [*outcome.begins[1:], max(outcome.done) + 1]
    slopes, weights, begin = [0.0], [0], 0
    for bound in bounds:
        numbers = range(begin, bound)
        ended = sorted(outcome.done[number].ended_ns for number in numbers)
        left_out, begin = min(ends, len(ended) // 4), bound
        kept = np.asarray(ended[left_out : len(ended) - left_out], dtype=float) - first
        if len(kept) > 2:
            slopes.append(float(np.polyfit(np.arange(len(kept)), kept, 1)[0]))
            weights.append(len(kept))
    slope = float(np.average(slopes, weights=weights)) if sum(weights) else 0.0
    return {
        "us": round(slope * of_a_mix / 1e3, 1),
        "with_ends_us": round((last - first) * of_a_mix / 1e3 / len(done), 1),
        "latency_us": round(median(one.ended_ns - one.started_ns for one in done) / 1e3, 1),
        "requests": len(done),
    }


def columns(outcome: Outcome) -> dict[str, Any]:
    """The timeline as columns."""
    events = outcome.events()
    origin = min((event.start_ns for event in events), default=0)
    devices = sorted({event.device for event in events})
    rows = [
        (
            devices.index(event.device),
            QUEUES.index(event.queue),
            event.slot,
            event.request,
            -1 if event.step is None else int(event.step),
            event.start_ns - origin,
            event.end_ns - event.start_ns,
            event.bytes,
        )
        for event in events
    ]
    traces_of = [turn.trace for turn in outcome.turns]
    table = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=False))
    return {"devices": devices, "traces": traces_of, **table}


if __name__ == "__main__":
    main()
