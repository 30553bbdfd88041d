"""All replicas of a plan, ready for requests: their sequences and their host loops.

In: an open plan, its materials, and a choice of backend. Out: `submit`. Sequences are numbered
across all replicas: those of the first replica come first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.backend.host_loop.dispatch import NOTHING, Dispatcher
from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.known_backends import BackendName
from tessera.backend.service import (
    Backend,
    BackendOptions,
    Bytes,
    ChainingBackend,
    CommonMemory,
    Completion,
    DeviceBytes,
    InPlace,
    Model,
)
from tessera.diagnostics import TesseraError
from tessera.driver.hosts.assign import assign_hosts
from tessera.driver.run.backends import BackendChoice, make_backend
from tessera.driver.run.isolated import IsolatedBackend, ReplicaProcess, sharing_cards
from tessera.driver.run.materials import Materials, read_materials
from tessera.driver.run.moves import MoveEnd, MoveHandle, Mover
from tessera.driver.run.open_plan import OpenPlan, open_plan
from tessera.driver.run.options import ServingOptions
from tessera.driver.run.state_rows import StateRows, parts_of_rows
from tessera.ir.plan.hand_over import MovedSequence
from tessera.ir.plan.hosts import TRANSPORTS, HostTable
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.policies import policies_of
from tessera.ir.progress import Count, OnProgress

if TYPE_CHECKING:
    from tessera.backend.hosts.hosts_backend import HostsRun
    from tessera.backend.hosts.link_pool import LinkPool


CHILD_BOOT = ""
"""A module that processes of replicas import first: tests put a stand-in for the driver there."""


class Serving:
    """A plan that takes requests."""

    _own_pool: LinkPool | None = None

    def __init__(
        self,
        opened: OpenPlan,
        materials: Materials,
        choice: BackendChoice,
        options: ServingOptions,
        *,
        given: Plan | str = "",
        isolated: bool = False,
        asked: BackendOptions | None = None,
    ) -> None:
        """With `isolated`, replicas are in processes of their own, which open the plan `given`.

        `asked` holds options of the backend that `options` do not set.
        """
        self.opened = opened
        self._asked = asked
        self._materials = materials
        self.sequences = [
            (index, sequence)
            for index, replica in enumerate(opened.replicas)
            for sequence in range(replica.lowered.lanes)
        ]
        self._choice = choice
        self._options = options
        self._models = models_of(opened, materials)
        self._dispatchers: dict[int, Dispatcher] = {}
        self._processes: dict[int, ReplicaProcess | None] = {}
        self._closed = False
        self._mover = Mover(opened)
        self._run: HostsRun | None = None
        on_gpus = choice.backend.is_on_gpus
        self._isolated = isolated and on_gpus and choice.hosts is None
        self._given = given
        targets = choice.targets or options.targets
        self._process_options = replace(options, backend=choice.backend, targets=targets)
        self._groups = self._find_groups()
        try:
            if choice.hosts is not None:
                self._run = hosts_run(opened, materials, choice.hosts, options.pool)
                self._own_pool = None if options.pool is not None else self._run.pool
            for group in self._groups:
                self._open(group)
        except BaseException:
            self.close(wait=False)
            raise

    def _find_groups(self) -> list[list[int]]:
        """Groups of replicas that fault together: on GPUs, those that share a card."""
        opened = self.opened
        if not self._choice.backend.is_on_gpus:
            return [[index] for index in range(len(opened.replicas))]
        card_of = {device.name: device.card for device in opened.plan.devices}
        return sharing_cards(
            [frozenset(card_of.get(d, d) for d in r.lowered.devices) for r in opened.replicas]
        )

    def _open(self, group: Sequence[int]) -> None:
        """Backends for the replicas of a group, in a process of their own if asked."""
        models = {index: self._models[index] for index in group}
        plain = backend_options(self._choice, self._options, self._asked)
        options = options_of_each(plain, self.opened, group)
        process = None
        if self._isolated:
            process = ReplicaProcess(self._given, self._process_options, models, CHILD_BOOT)
        made: list[Dispatcher] = []
        try:
            for index, model in models.items():
                backend = (
                    _make(self._choice, model, options[index], self._run)
                    if process is None
                    else IsolatedBackend(process, index)
                )
                slots, lanes = model.lowered.slots, model.lowered.lanes
                made.append(
                    Dispatcher(backend, slots=slots, lanes=lanes, limit_s=self._options.limit_s)
                )
        except BaseException:
            for dispatcher in made:
                dispatcher.close(wait=False)
            raise
        for index, dispatcher in zip(group, made, strict=True):
            self._dispatchers[index] = dispatcher
            self._processes[index] = process

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of sequences that a fault ends together."""
        return tuple(
            tuple(n for n, (replica, _) in enumerate(self.sequences) if replica in group)
            for group in self._groups
        )

    def processes(self) -> list[int]:
        """The live processes of replicas that run in processes of their own."""
        made = {p.process.pid: p.process for p in self._processes.values() if p is not None}
        return [number for number, process in made.items() if process.poll() is None]

    def restart(self, sequence: int) -> None:
        """Start the replicas of a sequence's group again, with their initial states."""
        replica, _ = self.sequences[sequence]
        group = next(own for own in self._groups if replica in own)
        for index in group:
            with suppress(TesseraError):
                self._dispatchers[index].close(wait=False)
        self._open(group)
        if self._closed:
            for index in group:
                self._dispatchers[index].close(wait=False)

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> bool:
        """Whether inputs of a trace may be outputs of the previous request (`EarlierOutput`).

        If they may, the backends are prepared for that now.
        """
        backends = [dispatcher.backend for dispatcher in self._dispatchers.values()]
        able = [own for own in backends if isinstance(own, ChainingBackend) and own.depth > 1]
        if len(able) < len(backends):
            return False
        for backend in able:
            backend.prepare_chain(trace, inputs)
        return True

    @property
    def capacity(self) -> int:
        """The number of requests that all replicas together take at a time."""
        return sum(dispatcher.capacity for dispatcher in self._dispatchers.values())

    def submit(
        self,
        inputs: Mapping[str, Bytes],
        *,
        sequence: int,
        trace: int,
        number: int,
        in_place: InPlace = NOTHING,
        finish: Callable[[Completion], Any] | None = None,
    ) -> RequestHandle[Any]:
        """Give a request to the replica of its sequence; waits while the replica is full."""
        replica, own = self.sequences[sequence]
        return self._dispatchers[replica].submit(
            inputs, trace=trace, lane=own, number=number, in_place=in_place, finish=finish
        )

    def locate(self, given: object, size: int, sequence: int) -> DeviceBytes | None:
        """An array in GPU memory that the replica of a sequence can read in place."""
        return self._dispatchers[self.sequences[sequence][0]].backend.locate(given, size)

    def read_states(self, sequence: int) -> Mapping[str, Bytes]:
        """The states of a sequence, once no request is in it."""
        replica, own = self.sequences[sequence]
        return self._dispatchers[replica].read_states(own)

    def write_rows(self, sequence: int, given: Mapping[str, StateRows]) -> None:
        """Set rows of states of a sequence, wherever they are kept, once no request is in it."""
        self._check_words(given)
        replica, own = self.sequences[sequence]
        lowered = self.opened.replicas[replica].lowered
        parts = list(parts_of_rows(lowered, self.opened.programs, given))
        self._dispatchers[replica].write_parts(own, parts)

    def move(
        self, source: int, target: int, moved: Sequence[MovedSequence], token_axis: int
    ) -> MoveHandle:
        """Hand sequences over from one lane to another, both by their numbers here."""
        ends = [
            MoveEnd(replica, self._dispatchers[replica], lane)
            for replica, lane in (self.sequences[source], self.sequences[target])
        ]
        return self._mover.start(ends[0], ends[1], tuple(moved), token_axis)

    def first_states(self, sequence: int) -> Mapping[str, Bytes]:
        """The initial states of a sequence."""
        return self._materials.states[sequence]

    def _check_words(self, states: Iterable[str]) -> None:
        """Refuse states with words that hold addresses: only a device knows their values."""
        for program in self.opened.programs:
            for table in program.pointer_tables:
                name = program.buffers[table.buffer].name
                if name in states:
                    message = f"state `{name}` holds addresses, and cannot be set"
                    raise TesseraError.of("TSR5053", message)

    def close(self, *, wait: bool = True) -> None:
        """Release all devices; with `wait`, requests under way end first."""
        self._closed = True
        if self._own_pool is not None:
            self._own_pool.close()
        raised: list[BaseException] = []
        for dispatcher in self._dispatchers.values() if wait else ():
            dispatcher.refuse()
        for dispatcher in self._dispatchers.values():
            try:
                dispatcher.close(wait=wait)
            except BaseException as problem:
                raised.append(problem)  # the others are still closed
        if raised:
            raise raised[0]


def _make(
    choice: BackendChoice, model: Model, options: BackendOptions, run: HostsRun | None
) -> Backend:
    if run is None:
        return make_backend(choice, model, options)
    from tessera.backend.hosts.hosts_backend import HostsBackend

    return HostsBackend(model, options, run)


def hosts_run(
    opened: OpenPlan, materials: Materials, table: HostTable, pool: LinkPool | None
) -> HostsRun:
    """Where the devices of a run are, and what their processes start with.

    Without a pool from the caller, restarted replicas take processes from a pool of their own.
    """
    from tessera.backend.hosts.hosts_backend import HostsRun
    from tessera.driver.hosts.kept_hosts import device_pool
    from tessera.driver.hosts.sent_plan import SentPlan

    host_of = assign_hosts(table, opened.plan)
    return HostsRun(
        host_of=host_of,
        describe=SentPlan(
            opened.plan, opened.programs, opened.graphs, materials.weights, host_of
        ).describe,
        heartbeat_s=table.heartbeat_s,
        silent_s=table.silent_s,
        transport=table.transport or TRANSPORTS[0],
        pool=pool or device_pool(),
    )


def models_of(opened: OpenPlan, materials: Materials) -> list[Model]:
    """The model from which the backend of each replica is made."""
    models = []
    first = 0
    for replica in opened.replicas:
        last = first + replica.lowered.lanes
        models.append(
            Model(
                lowered=replica.lowered,
                traces=opened.served(replica),
                weights=materials.weights,
                states=materials.states[first:last],
                fillings=materials.fillings,
            )
        )
        first = last
    return models


def options_of_each(
    plain: BackendOptions, opened: OpenPlan, numbers: Iterable[int]
) -> dict[int, BackendOptions]:
    """The options of the backends of some replicas in one process.

    In a plan with several policies, replicas of different policies share their weights.
    """
    if len(policies_of(opened.plan)) < 2:
        return dict.fromkeys(numbers, plain)
    common = CommonMemory()
    made, counts = {}, dict[tuple[str, str], int]()
    for index, replica in enumerate(opened.replicas):
        known = {}
        for device in replica.lowered.devices:
            turn = counts.get((replica.policy, device), 0)
            counts[replica.policy, device] = turn + 1
            known[device] = device, turn
        made[index] = replace(plain, common=common, common_as=known)
    return {number: made[number] for number in numbers}


def backend_options(
    choice: BackendChoice, options: ServingOptions, asked: BackendOptions | None = None
) -> BackendOptions:
    """The options of a backend; the remaining ones are taken from `asked`."""
    return replace(
        asked or BackendOptions(),
        targets=choice.targets,
        max_steps=options.max_steps,
        throttle_bytes_per_s=options.throttle_bytes_per_s,
        timeline=options.timeline,
    )


# --- what serving begins with --------------------------------------------------------------------


def open_served(
    given: Plan | str | os.PathLike[str],
    options: ServingOptions,
    on_progress: OnProgress | None = None,
) -> OpenPlan:
    """Open the plan for a run or a runtime."""
    return open_plan(
        given,
        slots=options.slots,
        sequences=options.sequences,
        policy=options.policy,
        data=options.data,
        data_root=options.data_root,
        weights=options.weights,
        hosts=options.read_hosts(),
        on_progress=on_progress,
    )


def served_materials(
    opened: OpenPlan,
    options: ServingOptions,
    backend: BackendName,
    inputs: str | None = None,
    count: Count = lambda done, total: None,
) -> Materials:
    """The materials that a run or a runtime starts from, by its options."""
    return read_materials(
        opened,
        sequences=sum(replica.lowered.lanes for replica in opened.replicas),
        seed=options.seed,
        data=options.data,
        inputs=inputs,
        data_root=options.data_root,
        weights=options.weights,
        on_host=backend == BackendName.CPU,
        count=count,
    )
