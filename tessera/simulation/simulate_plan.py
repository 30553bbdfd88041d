"""`simulate`: from a plan file to the simulated times of its requests, as a linear pipeline.

In: a path (or a `Plan`) and `SimulateOptions`. Out: a `SimulationReport`. The file and its machine
are all that is read: nothing that plans, prices, analyses or runs is imported here (a contract of
`pyproject.toml`). The stages, in order:

1. `_read`: the plan, verified as far as its text goes; it need not be proved.
2. `choose_replicas`: the replicas of a policy, with the requested slots and sequences.
3. `find_hardware`: how bytes travel by the rules of a backend.
4. `read_arrivals`: the arrival times of requests.
5. `saturate`, `alone`, `arrive`: the simulations; with noise, also simulations with drawn times.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Sequence
from dataclasses import replace

from tessera.diagnostics import TesseraError, error
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.frontend.plan.tsp import check_kind, read_plan
from tessera.frontend.plan.tsp_values import check_plan_given
from tessera.frontend.text.readfile import read_source
from tessera.ir.arrivals import LATEST_NS, Arrivals
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.plan.policies import ServedReplicas, policies_of, refuse_adaptive, served_by
from tessera.ir.plan.verify_plan import verify_plan
from tessera.ir.progress import OnProgress, counter
from tessera.simulation.blocked import blocked_queues
from tessera.simulation.hardware import Hardware, hardware_of, process_hardware, throttled
from tessera.simulation.known_work import work_of
from tessera.simulation.noise import Noise, draws_of_plan
from tessera.simulation.options import MOST_SEQUENCES, MOST_SLOTS, SimulateOptions
from tessera.simulation.report import Draw, SimulationReport
from tessera.simulation.simulate import (
    Simulation,
    alone,
    arrive,
    overfull,
    runs_alone,
    shares_of,
    with_counts,
)
from tessera.simulation.steady import saturate

DRAWS = 20
"""Number of simulations with noise: enough for the middle nine in ten."""

_STRATA = 32

MOST_EVENTS = 2_000_000
"""Maximum entries of a timeline: Perfetto opens no larger one, and each entry takes memory."""

_MOST_FLAWS = 20


def simulate(
    plan: Plan | str | os.PathLike[str],
    options: SimulateOptions | None = None,
    on_progress: OnProgress | None = None,
) -> SimulationReport:
    """Simulate a plan; `on_progress` receives the progress."""
    check_plan_given(plan)
    options = options or SimulateOptions()
    refuse_adaptive(options.policy)
    read, name = read_followed(plan)
    replicas = choose_replicas(read, options, name)
    hardware = find_hardware(read, options, name)
    check_followed(read, replicas, hardware)
    arrivals = _arrivals(options)
    times = _times(arrivals, options)
    _check_timeline(replicas, times, options)
    shares = shares_of(read)
    total = 1 + (DRAWS if options.noise else 0)
    keeps = options.timeline and times is None

    errors = draws_of_plan(read, _STRATA, options.seed)

    def follow(draw: int | None) -> tuple[Simulation, Simulation | None]:
        def noise() -> Noise | None:
            return None if draw is None else errors.draw(draw)

        keep = draw is None and options.timeline
        full = saturate(replicas, shares, hardware, noise=noise(), timeline=keep and keeps)
        if times is None:
            return full, None
        return full, arrive(replicas, shares, hardware, times, noise=noise(), timeline=keep)

    count = counter(on_progress, "simulating", "simulations")
    full, served = follow(None)
    draws = []
    for number in range(total - 1):
        count(number + 1, total)
        drawn = follow(number)
        draws.append(Draw(number=number, full=drawn[0], served=drawn[1]))
    return SimulationReport(
        name=name,
        plan=read,
        options=options,
        replicas=replicas,
        hardware=hardware,
        arrivals=arrivals,
        full=full,
        served=served,
        alone_ns=alone(replicas, shares, hardware),
        draws=tuple(draws),
    )


# --- the plan ------------------------------------------------------------------------------------


def read_followed(given: Plan | str | os.PathLike[str]) -> tuple[Plan, str]:
    """A plan with everything that a simulation needs, and its name."""
    if not isinstance(given, Plan):
        source = read_source(given)
        check_kind(source)
        return _complete(read_plan(source).plan), source.name
    flaws = list(itertools.islice(verify_plan(given), _MOST_FLAWS))
    if flaws:
        hint = "the plan was changed: plan again with `tessc plan`"
        raise TesseraError([error("TSR4013", flaw.message, hint=hint) for flaw in flaws])
    return _complete(given), "<plan>"


def _complete(plan: Plan) -> Plan:
    """Refuse a plan that lacks the programs of a trace: there is nothing to simulate."""
    if not plan.traces:
        raise TesseraError(
            error("TSR5060", "the plan has no traces, so there is nothing to follow")
        )
    for replica in plan.replicas:
        served = [number for number in range(len(plan.traces)) if replica.serves(number) > 0]
        if [own.trace for own in replica.lowered.traces] != served:
            message = "a replica has the programs of each trace that it serves once, in order"
            hint = "the plan was changed: plan again with `tessc plan`"
            raise TesseraError(error("TSR4013", message, hint=hint))
    return plan


def choose_replicas(plan: Plan, options: SimulateOptions, name: str) -> tuple[Replica, ...]:
    """The replicas that serve, with their slots and sequences."""
    return choose_served(plan, options, name)[0]


def choose_served(plan: Plan, options: SimulateOptions, name: str) -> ServedReplicas:
    """The replicas that serve, with the policies of each."""
    chosen = served_by(plan, options.policy)
    if chosen is None:
        named = ", ".join(f"`{policy}`" for policy in policies_of(plan) if policy)
        hint = f"choose one of: {named}" if named else "it has none to choose from"
        message = f"`{name}` has no policy `{options.policy}`"
        raise TesseraError(error("TSR5053", message, hint=hint))
    replicas, policies = chosen
    resized = []
    for replica in replicas:
        slots = 1 if runs_alone(replica) else options.slots or replica.slots
        sequences = options.sequences or replica.lanes
        _check_count("slots", slots, MOST_SLOTS)
        _check_count("sequences", sequences, MOST_SEQUENCES)
        resized.append(with_counts(replica, slots, sequences))
    served = {policy for own in policies for policy in own}
    others = [replica for replica in plan.replicas if replica.policy not in served]
    for card, used, room in overfull(plan, [*others, *resized]):
        raise TesseraError(
            error(
                "TSR4009",
                f"`{card}` has no room for this plan: it takes {used} bytes of {room}",
                notes=(f"with {resized[0].slots} slots and {resized[0].lanes} sequences",),
                hint="simulate with fewer `--slots` or `--sequences`",
            )
        )
    return tuple(resized), policies


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        message = f"a simulation has at most {most} {what} per replica, not {count}"
        hint = f"simulate with `--{what} {most}` or fewer"
        raise TesseraError(error("TSR5053", message, hint=hint))


def find_hardware(plan: Plan, options: SimulateOptions, name: str) -> Hardware:
    """How bytes travel by the rules of the requested backend."""
    if options.backend == "cpu":
        devices = tuple(device.name for device in plan.devices)
        return process_hardware(devices, options.throttle_bytes_per_s)
    hardware = hardware_of(plan)
    if hardware is None:
        raise TesseraError(
            error(
                "TSR5060",
                f"`{name}` does not say how its devices are joined: it is a plan of version 1",
                hint="plan again with `tessc plan`, or follow it by the rules of the CPU backend "
                "with `--backend cpu`",
            )
        )
    if options.throttle_bytes_per_s is None:
        return hardware
    return throttled(hardware, options.throttle_bytes_per_s)


def check_followed(plan: Plan, replicas: Sequence[Replica], hardware: Hardware) -> None:
    """Refuse plans whose simulation would not end."""
    _check_ends(plan, replicas, hardware)
    _check_lengths(plan, replicas, hardware)


def _check_ends(plan: Plan, replicas: Sequence[Replica], hardware: Hardware) -> None:
    """Refuse programs that would deadlock."""
    for replica in replicas:
        for lowered in replica.lowered.traces:
            blocked = blocked_queues(lowered, buffered=hardware.buffered)
            if blocked:
                trace = plan.traces[lowered.trace].name
                raise TesseraError(
                    error(
                        "TSR4008",
                        f"programs of `{trace}` wait for each other, so no request ends",
                        notes=tuple(f"`{queue}` waits for {what}" for queue, what in blocked[:6]),
                        hint="`tessc check` says what is wrong; plan again with `tessc plan`",
                    )
                )


def _check_lengths(plan: Plan, replicas: Sequence[Replica], hardware: Hardware) -> None:
    """Refuse times that are not finite: a bandwidth close to zero makes them infinite."""
    for work in work_of(replicas, hardware):
        for trace, own in work.items():
            longest = max((node.ns for node in own.nodes), default=0.0)
            if not longest <= LATEST_NS:
                message = f"an operation of `{plan.traces[trace].name}` takes {longest:g} ns"
                hint = "look at the times of steps and at the bandwidths of paths in the plan"
                raise TesseraError(error("TSR4013", message, hint=hint))


# --- requests ------------------------------------------------------------------------------------


def _arrivals(options: SimulateOptions) -> Arrivals | None:
    given, most = options.arrivals, options.requests
    if given is None:
        return None
    if isinstance(given, Arrivals):
        return given if most is None else replace(given, requests=given.requests[:most])
    return read_arrivals(os.fspath(given), most=most, seed=options.seed)


def _times(arrivals: Arrivals | None, options: SimulateOptions) -> list[float] | None:
    """Arrival times of requests; None for back-to-back requests."""
    if arrivals is None:
        return None if options.requests is None else [-1.0] * int(options.requests)
    times = [request.at_ns / options.speed for request in arrivals.requests]
    if not times or times[0] < 0 or any(map(operator.gt, times, times[1:])):
        message = "`arrivals` must have requests, in order, from 0 on"
        raise TesseraError(error("TSR5053", message))
    if times[-1] > LATEST_NS:
        message = f"at a speed of {options.speed:g} the last request comes after {LATEST_NS:g} ns"
        raise TesseraError(error("TSR5053", message, hint="choose a higher `--speed`"))
    return times


def _check_timeline(
    replicas: Sequence[Replica], times: Sequence[float] | None, options: SimulateOptions
) -> None:
    """Refuse a timeline that is too large to open."""
    if not options.timeline or times is None:
        return
    most = max(
        sum(len(program.operations) for program in lowered.programs)
        for replica in replicas
        for lowered in replica.lowered.traces
    )
    if most * len(times) > MOST_EVENTS:
        raise TesseraError(
            error(
                "TSR5053",
                f"the timeline of {len(times)} requests would be too large",
                notes=(f"a request has up to {most} operations, a timeline {MOST_EVENTS}",),
                hint=f"take fewer, with `--requests {max(1, MOST_EVENTS // most)}`",
            )
        )
