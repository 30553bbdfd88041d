"""Plans predicted and measured: rate and latencies of a few plans of each model.

In: a `Workshop` and a plan. Out: a row: what the simulation of the plan says, with the range of
nine in ten draws from its error bars, and what the devices do. Requests come back to back, with
inputs that are made before; rates are slopes between the ends of requests, by the replica that is
furthest behind its share; latencies are medians of what the backend says of each request. Before
that some requests are compared with one device to the byte.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import Completion
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.serving import Serving
from tessera.driver.selftest.document import Row
from tessera.driver.selftest.trials import Workshop, compare_bytes, digest_of, run_whole
from tessera.ir.plan.plan import Plan
from tessera.planning.search.strategies import DP, KERNEL, LAYERS, PLAN_STRATEGIES
from tessera.simulation.options import SimulateOptions
from tessera.simulation.report import middle, rate_of
from tessera.simulation.simulate_plan import simulate

PLANS = (DP, LAYERS, KERNEL)
_SEARCH_S = 10.0
_VERIFIED = 3
_WARM_S = 0.3
_ALONE = 5
_LEAST = 8
_PATIENCE = 4
_FEWEST = 3


def make_trial(shop: Workshop, trace: str, label: str, profiles: tuple[str, ...]) -> Plan:
    """The plan of a label: a strategy, or `random:SEED`."""
    if label in PLAN_STRATEGIES:
        return shop.plan(trace, strategy=label, profiles=profiles, seconds=_SEARCH_S)
    return shop.plan(trace, placement=label, profiles=profiles)


def predict(shop: Workshop, plan: Plan) -> Row:
    """The simulated figures, with their error ranges."""
    report = simulate(
        plan, SimulateOptions(backend=shop.ground.backend, seed=shop.seed, noise=True)
    )
    rates = [rate_of(draw.full.period_ns) for draw in report.draws]
    loaded = [draw.full.latency_ns for draw in report.draws]
    return {
        "requests_per_s": round(rate_of(report.full.period_ns), 3),
        "requests_per_s_range": [round(rate, 3) for rate in middle(rates)],
        "latency_alone_ns": round(report.alone_ns, 1),
        "latency_loaded_ns": round(report.full.latency_ns, 1),
        "latency_loaded_ns_range": [round(ns, 1) for ns in middle(loaded)],
    }


def try_plan(shop: Workshop, plan: Plan, seconds: float) -> Row:
    """Predict, compare and measure a plan."""
    predicted = predict(shop, plan)
    prepared = shop.prepare(plan, _VERIFIED * len(plan.replicas))
    equal = compare_bytes(run_whole(prepared), prepared)
    return {
        "digest": digest_of(plan),
        "strategy": plan.strategy,
        "devices": [list(replica.lowered.devices) for replica in plan.replicas],
        "slots": [replica.slots for replica in plan.replicas],
        "shares": [replica.share for replica in plan.replicas],
        "transfers": sum(len(t.transfers) for r in plan.replicas for t in r.lowered.traces),
        "bytes_equal": equal,
        "predicted": predicted,
        "measured": _measure(prepared, plan, seconds),
    }


@dataclass(slots=True)
class _Ended:
    """When requests of a replica ended, and the time that each took."""

    at: list[float] = field(default_factory=list)
    ns: list[int] = field(default_factory=list)

    def add(self, handle: RequestHandle[Completion]) -> None:
        if handle.exception() is None:
            completion = handle.result()
            self.ns.append(completion.ended_ns - completion.started_ns)
            self.at.append(time.perf_counter())

    def per_s(self, begun: float, ended: float) -> float:
        """Requests per second between the first and the last that ended in an interval."""
        inside = [at for at in self.at if begun <= at <= ended]
        took = inside[-1] - inside[0] if len(inside) > 1 else 0.0
        return (len(inside) - 1) / took if took > 0 else 0.0

    def inside(self, begun: float, ended: float) -> list[int]:
        return [ns for at, ns in zip(self.at, self.ns, strict=False) if begun <= at <= ended]


def _measure(prepared: Prepared, plan: Plan, seconds: float) -> Row:
    serving = Serving(prepared.opened, prepared.materials, prepared.choice, prepared.options)
    try:
        alone = _alone(serving, prepared)
        ends, begun, ended = _load(serving, prepared, seconds)
    finally:
        serving.close(wait=False)
    rates = [own.per_s(begun, ended) for own in ends]
    shares = [replica.share for replica in plan.replicas]
    latencies = [ns for own in ends for ns in own.inside(begun, ended)]
    return {
        "requests_per_s": round(min(r / s for r, s in zip(rates, shares, strict=True)), 3),
        "requests": len(latencies),
        "latency_alone_ns": statistics.median(alone),
        "latency_loaded_ns": statistics.median(latencies) if latencies else None,
    }


def _alone(serving: Serving, prepared: Prepared) -> list[int]:
    """Times of requests on idle devices; the first requests of each replica do not count."""
    inputs = prepared.materials.inputs(0, 0, 0)
    times = []
    for number in range(_ALONE + 2):
        handle = serving.submit(inputs, sequence=0, trace=0, number=number)
        completion: Completion = handle.result()
        if number >= 2:
            times.append(completion.ended_ns - completion.started_ns)
    return times


def _load(
    serving: Serving, prepared: Prepared, seconds: float
) -> tuple[Sequence[_Ended], float, float]:
    """Keep all replicas busy for a time; when each request ended, and the interval that counts."""
    replicas = range(len(prepared.opened.replicas))
    ends = [_Ended() for _ in replicas]
    over = threading.Event()
    problems: list[BaseException] = []
    inputs = prepared.materials.inputs(0, 0, 0)
    most = [2 * prepared.opened.replicas[r].lowered.slots + _LEAST for r in replicas]

    def feed(replica: int) -> None:
        own = [n for n, (index, _) in enumerate(serving.sequences) if index == replica]
        handles: list[RequestHandle[Completion]] = []
        try:
            for number in itertools.count():
                if over.is_set() or problems:
                    break
                sequence = own[number % len(own)]
                handle = serving.submit(inputs, sequence=sequence, trace=0, number=1000 + number)
                handle.add_done_callback(ends[replica].add)
                handles.append(handle)
                handles = handles[-4 * most[replica] :]
            for handle in handles:
                handle.result()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=feed, args=(replica,), daemon=True) for replica in replicas]
    for thread in threads:
        thread.start()
    _sleep(ends, [count // 2 for count in most], min(_WARM_S, seconds), problems)
    begun = time.perf_counter()
    _sleep(ends, most, seconds, problems)
    ended = time.perf_counter()
    over.set()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return ends, begun, ended


def _sleep(
    ends: Sequence[_Ended], wanted: Sequence[int], seconds: float, problems: Sequence[BaseException]
) -> None:
    """Wait until every replica has ended `wanted` more requests, and for at least `seconds`.

    The wait ends after a few times `seconds` if some requests have ended, enough for a rate.
    """
    begun, before = time.perf_counter(), [len(own.at) for own in ends]
    while not problems:
        passed = time.perf_counter() - begun
        more = [len(own.at) - count for own, count in zip(ends, before, strict=True)]
        enough = all(new >= count for new, count in zip(more, wanted, strict=True))
        if passed >= seconds and enough:
            return
        if passed >= _PATIENCE * seconds and min(more) >= _FEWEST:
            return
        time.sleep(0.002)
