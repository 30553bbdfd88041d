"""All replicas of a plan, ready for requests: which replica, which sequence, each one's host loop.

In: an open plan, its materials, and a choice of backend. Out: `submit`. Sequences are numbered over
all replicas: those of the first come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tessera.backend.host_loop.dispatch import NOTHING, Dispatcher
from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import (
    Backend,
    BackendOptions,
    Bytes,
    Completion,
    DeviceBytes,
    Model,
)
from tessera.diagnostics import TesseraError, error
from tessera.driver.hosts.assign import assign_hosts
from tessera.driver.run.backends import BackendChoice, make_backend
from tessera.driver.run.materials import Materials
from tessera.driver.run.open_plan import OpenPlan
from tessera.driver.run.options import ServingOptions
from tessera.ir.plan.hosts import HostTable

if TYPE_CHECKING:
    from tessera.backend.hosts.driver_side import HostsRun


class Serving:
    """A plan that takes requests."""

    def __init__(
        self, opened: OpenPlan, materials: Materials, choice: BackendChoice, options: ServingOptions
    ) -> None:
        self.opened = opened
        self._materials = materials
        self.sequences = [
            (index, sequence)
            for index, replica in enumerate(opened.replicas)
            for sequence in range(replica.lowered.lanes)
        ]
        self._dispatchers: list[Dispatcher] = []
        try:
            run = None if choice.hosts is None else hosts_run(opened, materials, choice.hosts)
            for model in models_of(opened, materials):
                backend = _make(choice, model, backend_options(choice, options), run)
                slots, lanes = model.lowered.slots, model.lowered.lanes
                self._dispatchers.append(
                    Dispatcher(backend, slots=slots, lanes=lanes, limit_s=options.limit_s)
                )
        except BaseException:
            self.close(wait=False)
            raise

    @property
    def capacity(self) -> int:
        """Requests that all replicas together take at a time."""
        return sum(dispatcher.capacity for dispatcher in self._dispatchers)

    def submit(
        self,
        inputs: Mapping[str, Bytes],
        *,
        sequence: int,
        trace: int,
        number: int,
        in_place: Mapping[str, DeviceBytes] = NOTHING,
        finish: Callable[[Completion], Any] | None = None,
    ) -> RequestHandle[Any]:
        """Give a request to the replica of its sequence; waits while that can take no more."""
        replica, own = self.sequences[sequence]
        return self._dispatchers[replica].submit(
            inputs, trace=trace, lane=own, number=number, in_place=in_place, finish=finish
        )

    def locate(self, given: object, size: int, sequence: int) -> DeviceBytes | None:
        """An array in the memory of a GPU that the replica of a sequence can read where it is."""
        return self._dispatchers[self.sequences[sequence][0]].backend.locate(given, size)

    def read_states(self, sequence: int) -> Mapping[str, Bytes]:
        """The states of a sequence, once no request is in it."""
        replica, own = self.sequences[sequence]
        return self._dispatchers[replica].read_states(own)

    def write_states(self, sequence: int, states: Mapping[str, Bytes]) -> None:
        """Set some states of a sequence, once no request is in it."""
        self._check_words(states)
        replica, own = self.sequences[sequence]
        self._dispatchers[replica].write_states(own, states)

    def first_states(self, sequence: int) -> Mapping[str, Bytes]:
        """The states that a sequence began with."""
        return self._materials.states[sequence]

    def _check_words(self, states: Mapping[str, Bytes]) -> None:
        """Refuse states with words for addresses: a device alone knows what they hold."""
        for program in self.opened.programs:
            for table in program.pointer_tables:
                name = program.buffers[table.buffer].name
                if name in states:
                    message = f"state `{name}` holds addresses, and cannot be set"
                    raise TesseraError(error("TSR5053", message))

    def close(self, *, wait: bool = True) -> None:
        """Give all devices back; what is under way ends first if `wait`."""
        raised: list[BaseException] = []
        for dispatcher in self._dispatchers if wait else ():
            dispatcher.refuse()
        for dispatcher in self._dispatchers:
            try:
                dispatcher.close(wait=wait)
            except BaseException as problem:
                raised.append(problem)  # the others are closed all the same
        if raised:
            raise raised[0]


def _make(
    choice: BackendChoice, model: Model, options: BackendOptions, run: HostsRun | None
) -> Backend:
    if run is None:
        return make_backend(choice, model, options)
    from tessera.backend.hosts.hosts_backend import HostsBackend

    return HostsBackend(model, options, run)


def hosts_run(opened: OpenPlan, materials: Materials, table: HostTable) -> HostsRun:
    """Where the devices of a run are, and what their processes begin with."""
    from tessera.backend.hosts.driver_side import HostsRun
    from tessera.driver.hosts.sent_plan import SentPlan

    return HostsRun(
        host_of=assign_hosts(table, opened.plan),
        describe=SentPlan(opened, materials.weights).describe,
        heartbeat_s=table.heartbeat_s,
        silent_s=table.silent_s,
    )


def models_of(opened: OpenPlan, materials: Materials) -> list[Model]:
    """What the backend of each replica is made from."""
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


def backend_options(choice: BackendChoice, options: ServingOptions) -> BackendOptions:
    """The options of a backend."""
    return BackendOptions(
        targets=choice.targets,
        max_steps=options.max_steps,
        throttle_bytes_per_s=options.throttle_bytes_per_s,
        timeline=options.timeline,
    )
