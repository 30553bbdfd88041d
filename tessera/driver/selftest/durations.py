"""How long the steps of the self-test's traces take: a profile per model.

On GPUs it is that of `tessc profile`. On the CPU backend it is what the timeline of a run on one
device says, the same for all devices: the machine under them is one.
"""

from __future__ import annotations

import statistics

from tessera.driver.bench import ProfileOptions
from tessera.driver.load import load
from tessera.driver.profile import profile, profile_text, program_digest
from tessera.driver.selftest.document import Row
from tessera.driver.selftest.trials import Workshop, run_whole
from tessera.frontend.machine.profile import SCHEMA
from tessera.ir.plan.launch_program import Queue

_REPEATS = 5
_REQUESTS = 5
_UNTIMED = 1
_LEAST_ERROR = 0.05


def measure_durations(shop: Workshop, trace: str) -> Row:
    """The profile of a trace on the devices."""
    if shop.ground.backend == "cpu":
        return _from_timeline(shop, trace)
    options = ProfileOptions(
        devices=shop.ground.devices, repeats=_REPEATS, seed=shop.seed, limit_s=shop.limit_s
    )
    return profile(trace, options)


def keep_profile(shop: Workshop, model: str, measured: Row) -> str:
    """The file of a profile, for plans."""
    path = shop.folder / f"{model}.profile.json"
    path.write_text(profile_text(measured), "utf-8")
    return str(path)


def _from_timeline(shop: Workshop, trace: str) -> Row:
    placed = shop.folder / "alone.place"
    placed.write_text(f"*={shop.machine.devices[0].name}\n", "utf-8")
    plan = shop.plan(trace, placement=str(placed), slots=1, sequences=1)
    outcome = run_whole(shop.prepare(plan, _UNTIMED + _REQUESTS, timeline=True))
    times: dict[int, list[int]] = {}
    for request in sorted(outcome.done)[_UNTIMED:]:
        for event in outcome.done[request].events:
            if event.queue is Queue.COMPUTE and event.step is not None:
                times.setdefault(int(event.step), []).append(event.end_ns - event.start_ns)
    program = load(trace)
    names = {step.step: step.name for step in plan.replicas[0].traces[0].steps}
    devices = {(shop.machine.gpu_of(d).key, d.sms) for d in shop.machine.devices}
    rows = []
    for gpu, sms in sorted(devices):
        for step, taken in sorted(times.items()):
            middle = max(statistics.median(taken), 1.0)
            spread = statistics.median(abs(ns - middle) for ns in taken) / middle
            rows.append(
                {
                    "step": step,
                    "name": names[step],
                    "gpu": gpu,
                    "sms": sms,
                    "ns": round(middle, 1),
                    "error": round(min(max(spread, _LEAST_ERROR), 1.0), 4),
                }
            )
    return {"schema": SCHEMA, "program": program_digest(program), "rows": rows}
