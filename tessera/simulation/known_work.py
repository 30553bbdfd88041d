"""A cache of the work of launch programs that are simulated with several counts, gates and noises.

In: replicas on some hardware. Out: the work of a request of every trace. A known program is not
followed again: only its gate is looked up and its step times are set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tessera.ir.plan.launch_program import DeviceProgram, LoweredTrace
from tessera.ir.plan.plan import PlacedStep, PlannedHandOver, Replica
from tessera.simulation.hand_over_work import with_hand_overs
from tessera.simulation.hardware import Hardware
from tessera.simulation.noise import Noise
from tessera.simulation.work import RequestWork, StepTimes, WorkNode, request_work

_NO_TIME: StepTimes = (0.0, 0.0, 0.0)


class KnownWork:
    """Work of launch programs by the identity of their records, which this cache keeps alive."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._plain: dict[
            object,
            tuple[tuple[DeviceProgram, ...], tuple[PlacedStep, ...], RequestWork],
        ] = {}

    def of(
        self, replicas: Sequence[Replica], noise: Noise | None = None
    ) -> list[dict[int, RequestWork]]:
        """The work of a request of every trace, on every replica."""
        return [
            {
                lowered.trace: self._of(
                    lowered,
                    placed.steps,
                    noise,
                    replica.slots,
                    tuple(own for own in replica.hand_overs if own.trace == lowered.trace),
                )
                for placed, lowered in zip(replica.traces, replica.lowered.traces, strict=True)
            }
            for replica in replicas
        ]

    def _of(
        self,
        lowered: LoweredTrace,
        steps: tuple[PlacedStep, ...],
        noise: Noise | None,
        slots: int,
        hand_overs: tuple[PlannedHandOver, ...],
    ) -> RequestWork:
        key = id(lowered.programs), id(steps), slots, hand_overs
        if key not in self._plain:
            plain = replace(lowered, gate=None)
            work = request_work(plain, _times(steps, None), self._hardware, slots)
            work = with_hand_overs(work, hand_overs, self._hardware)
            self._plain[key] = lowered.programs, steps, work
        work = self._plain[key][2]
        if lowered.gate is not None:
            gates = [n for n, node in enumerate(work.nodes) if node.step == lowered.gate]
            if not gates:  # a step without time is left out unless it is a gate
                work = request_work(lowered, _times(steps, noise), self._hardware, slots)
                return with_hand_overs(work, hand_overs, self._hardware)
            work = replace(work, gate=gates[0])
        if noise is None:
            return work
        times = _times(steps, noise)
        return replace(work, nodes=tuple(_timed(node, times) for node in work.nodes))


def _timed(node: WorkNode, times: Sequence[StepTimes]) -> WorkNode:
    if node.step < 0:
        return node
    ns, alone_ns, quiet_ns = times[node.step]
    return replace(node, ns=ns, alone_ns=alone_ns, quiet_ns=quiet_ns)


def work_of(
    replicas: Sequence[Replica], hardware: Hardware, noise: Noise | None = None
) -> list[dict[int, RequestWork]]:
    """The work of a request of every trace, on every replica."""
    return KnownWork(hardware).of(replicas, noise)


def _times(steps: Sequence[PlacedStep], noise: Noise | None) -> list[StepTimes]:
    times = [_NO_TIME] * (1 + max((step.step for step in steps), default=-1))
    for step in steps:
        factor = 1.0 if noise is None else noise.of(step.name, step.device, step.error)
        ns, alone_ns, quiet_ns = step.times_ns
        times[step.step] = ns * factor, alone_ns * factor, quiet_ns * factor
    return times


def shape_of(
    replicas: Sequence[Replica], works: Sequence[Mapping[int, RequestWork]], hardware: Hardware
) -> object:
    """The structure of a group, independent of the names of its places."""
    numbers: dict[str, int] = {}

    def number(name: str) -> tuple[int, float]:
        return numbers.setdefault(name, len(numbers)), hardware.capacities.get(name, 0.0)

    return tuple(
        (
            replica.share,
            replica.shares,
            replica.slots,
            replica.lanes,
            tuple(
                (
                    trace,
                    own.gate,
                    own.host_ns,
                    own.is_split,
                    own.handed,
                    tuple(
                        (
                            n.kind,
                            n.ns,
                            n.alone_ns,
                            n.quiet_ns,
                            tuple(map(number, n.place)),
                            n.after,
                            n.rate,
                            n.delay_ns,
                        )
                        for n in own.nodes
                    ),
                )
                for trace, own in work.items()
            ),
        )
        for replica, work in zip(replicas, works, strict=True)
    )
