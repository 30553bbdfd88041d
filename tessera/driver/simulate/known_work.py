"""The work of launch programs that are simulated several times: with other counts, gates, noise.

In: replicas on some hardware. Out: the work of a request of every trace. Programs that were seen
before are not followed again: only the gate is found, and the times of steps are set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.driver.simulate.hardware import Hardware
from tessera.driver.simulate.noise import Noise
from tessera.driver.simulate.work import RequestWork, request_work
from tessera.ir.plan.launch_program import DeviceProgram, LoweredTrace
from tessera.ir.plan.plan import PlacedStep, Replica


class KnownWork:
    """What is known of launch programs, by the records themselves, which stay alive here."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._plain: dict[
            tuple[int, int],
            tuple[tuple[DeviceProgram, ...], tuple[PlacedStep, ...], RequestWork],
        ] = {}

    def of(
        self, replicas: Sequence[Replica], noise: Noise | None = None
    ) -> list[dict[int, RequestWork]]:
        """The work of a request of every trace, on every replica."""
        return [
            {
                lowered.trace: self._of(lowered, placed.steps, noise)
                for placed, lowered in zip(replica.traces, replica.lowered.traces, strict=True)
            }
            for replica in replicas
        ]

    def _of(
        self, lowered: LoweredTrace, steps: tuple[PlacedStep, ...], noise: Noise | None
    ) -> RequestWork:
        key = id(lowered.programs), id(steps)
        if key not in self._plain:
            plain = replace(lowered, gate=None)
            work = request_work(plain, _step_ns(steps, None), self._hardware)
            self._plain[key] = lowered.programs, steps, work
        work = self._plain[key][2]
        if lowered.gate is not None:
            gates = [n for n, node in enumerate(work.nodes) if node.step == lowered.gate]
            if not gates:  # a step without time, which is left out where it is no gate
                return request_work(lowered, _step_ns(steps, noise), self._hardware)
            work = replace(work, gate=gates[0])
        if noise is None:
            return work
        step_ns = _step_ns(steps, noise)
        nodes = (
            node if node.step < 0 else replace(node, ns=step_ns[node.step]) for node in work.nodes
        )
        return replace(work, nodes=tuple(nodes))


def work_of(
    replicas: Sequence[Replica], hardware: Hardware, noise: Noise | None = None
) -> list[dict[int, RequestWork]]:
    """The work of a request of every trace, on every replica."""
    return KnownWork(hardware).of(replicas, noise)


def _step_ns(steps: Sequence[PlacedStep], noise: Noise | None) -> list[float]:
    step_ns = [0.0] * (1 + max((step.step for step in steps), default=-1))
    for step in steps:
        factor = 1.0 if noise is None else noise.of(step.name, step.device, step.error)
        step_ns[step.step] = step.predicted_ns * factor
    return step_ns
