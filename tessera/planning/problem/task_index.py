"""Arrays of a problem's tasks and tensors that do not depend on the placement.

In: a `Problem`. Out: a `TaskIndex`, which all states of a local search share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tessera.planning.problem.problem import Problem

UNCONNECTED = 1e18  # a load that no plan accepts, yet finite: moves away from it help

Int64s = npt.NDArray[np.int64]


class TaskIndex:
    """Arrays of a problem's tasks and tensors that do not depend on the placement."""

    def __init__(self, problem: Problem) -> None:
        devices = len(problem.devices)
        self.problem = problem
        self.ns = [
            [UNCONNECTED if v is None else v * task.rate for v in task.ns] for task in problem.tasks
        ]
        self.allowed = [task.allowed() for task in problem.tasks]
        self.source = [tensor.producer for tensor in problem.tensors]
        self.readers = [set(t.consumers) - {t.producer} for t in problem.tensors]
        self.users = [set(resident.users) for resident in problem.residents]
        self.size = [float(resident.bytes) for resident in problem.residents]
        self.makes: list[list[int]] = [[] for _ in problem.tasks]
        self.reads: list[list[int]] = [[] for _ in problem.tasks]
        self.holds: list[list[int]] = [[] for _ in problem.tasks]
        for index, producer in enumerate(self.source):
            self.makes[producer].append(index)
            for task in self.readers[index]:
                self.reads[task].append(index)
        for index, users in enumerate(self.users):
            for task in users:
                self.holds[task].append(index)
        self.room_of = [-1] * devices
        for index, room in enumerate(problem.rooms):
            for device in room.devices:
                self.room_of[device] = index
        self.capacity = [float(room.bytes) for room in problem.rooms]
        self.times = np.array(self.ns, dtype=np.float64).reshape(len(problem.tasks), devices)
        self.read_by = _pairs(self.readers)
        self.used_by = _pairs(self.users)
        self._index_links()
        self._index_shared()

    def _index_links(self) -> None:
        problem, devices = self.problem, len(self.problem.devices)
        self.pipes: list[list[list[tuple[int, float]]]] = [
            [[] for _ in range(devices)] for _ in range(devices)
        ]
        for index, pipe in enumerate(problem.pipes):
            for source, target in pipe.pairs:
                self.pipes[source][target].append((devices + index, pipe.ns_per_byte))
        # Time of a tensor at both ends, per connected pair. There are many wires, but of few kinds.
        kinds = {wire.end_ns_per_byte: wire for wire in problem.wires}
        taxes = {
            kind: [problem.tax_ns(tensor, wire) for tensor in problem.tensors]
            for kind, wire in kinds.items()
        }
        self.tax: dict[tuple[int, int], list[float]] = {
            (wire.source, wire.target): taxes[wire.end_ns_per_byte] for wire in problem.wires
        }
        self.bytes = [tensor.bytes * tensor.rate for tensor in problem.tensors]

    def _index_shared(self) -> None:
        first = len(self.problem.devices) + len(self.problem.pipes)
        self.shared: list[list[tuple[int, tuple[float, ...]]]] = [[] for _ in self.problem.devices]
        for index, load in enumerate(self.problem.shared):
            for device in load.devices:
                self.shared[device].append((first + index, load.ns))


def _pairs(sets: Sequence[set[int]]) -> tuple[Int64s, Int64s]:
    """The number of each set and a member of it, pair by pair."""
    sizes = np.array([len(members) for members in sets], dtype=np.int64)
    members = [task for tasks in sets for task in tasks]
    return np.repeat(np.arange(len(sets)), sizes), np.array(members, dtype=np.int64)
