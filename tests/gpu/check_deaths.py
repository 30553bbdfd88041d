"""Deaths, faults and canceled requests on slices of one GPU, each slice in a process of its own.

    python -m tests.gpu.check_deaths deaths --count 20 [--far] [--stand-in]
    python -m tests.gpu.check_deaths requests --seconds 600 [--far] [--stand-in]

`deaths`: in the middle of requests a process is killed or stopped, a kernel traps, or requests are
canceled, again and again in the same runtimes. Every request ends with the bytes of one device or
with one fault that names the device; a second runtime on the same slices goes on; the replica is
built again and works. `requests`: requests that come and are canceled at random, until the time is
over. The last line says what happened. `--far`: the two slices are on hosts of their own, which are
this one. `--stand-in`: without a GPU, on a stand-in for the driver.

A hang does not end this program: whoever starts it sets a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tessera.backend.processes.reference import Reference
from tessera.backend.service import ServiceFault
from tessera.driver.run.runtime import Runtime
from tessera.ir.plan.launch_program import HOST
from tessera.ir.program.program import Program, Role
from tests.helpers.deaths import chain_that_may_stop
from tests.helpers.fake_gpu_python import fake_gpu_python
from tests.helpers.host_runs import backends_of, hosts_file
from tests.helpers.plan_files import H200, plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.served import contents

SLICES = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}
HOSTS = {False: {"here": "ab"}, True: {"left": "a", "right": "b"}}
KINDS = ("kill", "stop", "fault", "cancel")
LIMIT_S = 60.0
STOPPED, GOOD = 7, 0xFFFFFFFF


class Slices:
    """A runtime with a process per slice, and what one device gives."""

    def __init__(self, folder: Path, program: Program, steps: str, *, far: bool, fake: bool):
        python = f'python = "{fake_gpu_python(folder)}"\n' if fake else ""
        rows = [
            f'name = "{name}"\ndevices = {list(devices)}\n{python}'
            for name, devices in HOSTS[far].items()
        ]
        hosts = hosts_file(folder, *rows, head='silent = "4s"\n')
        plan = plan_of([program], [list(steps)], slots=3, lanes=3, gpu=H200)
        transfers = plan.replicas[0].lowered.traces[0].transfers
        assert any(HOST not in (transfer.source, transfer.target) for transfer in transfers)
        self.runtime = Runtime(
            write_plan(folder, plan),
            backend="cuda",
            targets=SLICES,
            hosts=hosts,
            time_limit_s=LIMIT_S,
        )
        self.program = program
        self.can_stop = not any(buffer.role is Role.WEIGHT for buffer in program.buffers)
        self.begin()

    def begin(self) -> None:
        """States are as at the start."""
        (backend,) = backends_of(self.runtime)
        model = backend.model
        self._reference = Reference(model.traces, model.weights, model.states, model.fillings)

    def inputs(self, seed: int) -> dict[str, np.ndarray]:
        """Inputs by seed; a negative one makes the chain trap."""
        if self.can_stop:
            value = STOPPED if seed < 0 else GOOD
            return {"x": np.full(1, value, np.uint32)}
        return contents(self.program, Role.INPUT, seed)

    def submit(self, seed: int, lane: int) -> Any:
        return self.runtime.submit(self.inputs(seed), sequence=lane)

    def assert_right(self, seed: int, lane: int, result: object) -> None:
        """As the next of its lane on one device."""
        wanted = self._reference.run(self.inputs(seed), trace=0, lane=lane).outputs
        for name, content in dict(result).items():  # type: ignore[call-overload]
            got = np.array(content).reshape(-1).view(np.uint8)
            np.testing.assert_array_equal(got, wanted[name], name)

    def processes(self) -> dict[str, int]:
        (backend,) = backends_of(self.runtime)
        return {device: link.process.pid for device, link in backend._links.items()}


def exchanging_program() -> tuple[Program, str]:
    """A random trace whose slices exchange bytes in both directions."""
    for seed in range(100, 200):
        program = random_program(seed, steps=8, races=False)
        steps = "".join("ab"[n % 2] for n in range(len(program.steps)))
        plan = plan_of([program], [list(steps)])
        ways = Counter((t.source, t.target) for t in plan.replicas[0].lowered.traces[0].transfers)
        if ways["a", "b"] > 1 and ways["b", "a"]:
            return program, steps
    raise AssertionError("no such trace")


def happen(kind: str, victim: int, handles: Sequence[Any], rng: random.Random) -> None:
    if kind in ("kill", "stop"):
        os.kill(victim, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    if kind == "cancel":
        for handle in rng.sample(handles, len(handles) // 2):
            handle.cancel()


def _feed(slices: Slices, asks: Sequence[tuple[int, int]], handles: list[Any]) -> None:
    for ask in asks:
        try:
            handles.append(slices.submit(*ask))
        except ServiceFault as fault:
            handles.append(fault)


def try_death(slices: Slices, other: Slices, kind: str, rng: random.Random) -> str:
    """One case; returns what it came to."""
    processes = slices.processes()
    victim = "b" if kind == "fault" else rng.choice(list(processes))
    asks = [(rng.randrange(100), rng.randrange(3)) for _ in range(rng.randint(3, 9))]
    if kind == "fault":
        asks[rng.randrange(len(asks))] = -1, rng.randrange(3)
    handles: list[Any] = []
    feeder = threading.Thread(target=_feed, args=(slices, asks, handles))
    feeder.start()
    beside = other.submit(0, 0)
    at = rng.randrange(len(asks))
    while len(handles) <= at and feeder.is_alive():
        time.sleep(1e-3)
    time.sleep(rng.uniform(0.0, 0.06))
    happen(kind, processes[victim], list(handles), rng)
    feeder.join()
    faults = []
    for ask, handle in zip(asks, handles, strict=True):
        if isinstance(handle, ServiceFault):
            faults.append(handle)
        elif not handle.cancelled():
            problem = handle.exception(LIMIT_S)
            if problem is None:
                slices.assert_right(*ask, handle.result())
            else:
                assert isinstance(problem, ServiceFault), problem
                faults.append(problem)
    assert len({str(fault) for fault in faults}) <= 1, faults
    assert all(fault.device == victim for fault in faults), (kind, victim, str(faults[0]))
    assert not faults or kind != "cancel"
    other.assert_right(0, 0, beside.result(LIMIT_S))
    if kind != "cancel":
        # Also if all requests were done before it happened.
        slices.runtime.restart(0)
        slices.begin()
        for pid in processes.values():
            kept = pid in slices.processes().values()
            assert kept or not os.path.exists(f"/proc/{pid}"), f"process {pid} is still there"
    slices.assert_right(1, 0, slices.submit(1, 0).result(LIMIT_S))
    return f"{kind}, fault" if faults else kind


def say(row: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def deaths(both: Sequence[Slices], count: int, seed: int) -> Counter[str]:
    """Cases on either runtime; kernels trap on the first alone."""
    seen: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(seed + number)
        kind = KINDS[number % len(KINDS)]
        turn = 0 if kind == "fault" else number // len(KINDS) % 2
        came = try_death(both[turn], both[1 - turn], kind, rng)
        say({"seed": seed + number, "came": came})
        seen[came] += 1
    return seen


def requests(both: Sequence[Slices], seconds: float, seed: int) -> Counter[str]:
    """Random requests and cancellations until the time is over; all bytes are compared."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    under_way: deque[tuple[Slices, tuple[int, int], Any]] = deque()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s or under_way:
        if time.monotonic() < end_s and len(under_way) < rng.randint(1, 24):
            slices, ask = rng.choice(both), (rng.randrange(100), rng.randrange(3))
            under_way.append((slices, ask, slices.submit(*ask)))
            if rng.random() < 0.4:
                seen["canceled"] += under_way[-1 - rng.randrange(min(2, len(under_way)))][
                    2
                ].cancel()
            continue
        slices, ask, handle = under_way.popleft()
        if not handle.cancelled():
            slices.assert_right(*ask, handle.result(LIMIT_S))
            seen["right"] += 1
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["deaths", "requests"])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--far", action="store_true")
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        both = []
        for own in ("chain", "random"):
            folder = Path(name) / own
            folder.mkdir()
            chain = chain_that_may_stop(), "aba"
            program, steps = chain if own == "chain" else exchanging_program()
            made = Slices(folder, program, steps, far=options.far, fake=options.stand_in)
            both.append(made)
        seen = (
            deaths(both, options.count, options.seed)
            if options.what == "deaths"
            else requests(both, options.seconds, options.seed)
        )
        for slices in both:
            slices.runtime.close(wait=False)
    say({"seen": seen})


if __name__ == "__main__":
    main()
