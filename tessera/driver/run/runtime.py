"""`tessera.Runtime`: serve requests of a plan from a program.

    with tessera.Runtime("plan.tsp") as runtime:
        handle = runtime.submit({"x": array})
        y = handle.result()["y"]

In: a plan (a path or a `Plan`), and arrays. Out: handles. A runtime may be used from any thread.
`submit` waits while `capacity` requests are under way, so a caller that submits in a loop is held
back to the speed of the devices. Arrays are NumPy's, torch's, or anything that speaks DLPack; they
are read in place, also in the memory of a GPU, and must not change before their handle is done.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.known_backends import BackendName
from tessera.backend.service import DEFAULT_LIMIT_S, Completion, TimelineEvent
from tessera.diagnostics import TesseraError
from tessera.driver.run.arrays import (
    TypedArray,
    float_array,
    inputs_of,
    read_inputs,
    typed_array,
)
from tessera.driver.run.backends import choose_backend
from tessera.driver.run.data_files import Data
from tessera.driver.run.moves import MoveHandle
from tessera.driver.run.options import ServingOptions
from tessera.driver.run.serving import Serving, open_served, served_materials
from tessera.driver.run.state_rows import of_rows, state_rows
from tessera.frontend.plan.tsp_values import check_plan_given
from tessera.ir.arguments import check_number, wrong_type
from tessera.ir.plan.hand_over import MovedSequence, RowPlace
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import Buffer, Program, Role

if TYPE_CHECKING:
    from tessera.driver.hosts.kept_hosts import KeptHosts


class Result(Mapping[str, TypedArray]):
    """The outputs of a request by name, as arrays of their type and shape.

    Types that NumPy lacks (`bf16`, `e4m3`) are those of `ml_dtypes`; without that package they are
    raw bits, with the type as the name of a field. `torch` gives them torch's type.
    """

    def __init__(self, program: Program, completion: Completion) -> None:
        self._program = program
        self._completion = completion

    def _buffer(self, name: str) -> Buffer:
        return next(buffer for buffer in self._program.buffers if buffer.name == name)

    def __getitem__(self, name: str) -> TypedArray:
        return typed_array(self._buffer(name), self._completion.outputs[name])

    def floats(self, name: str) -> TypedArray:
        """An output of floats as an array to compute with: `bf16` becomes f32."""
        return float_array(self._buffer(name), self._completion.outputs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._completion.outputs)

    def __len__(self) -> int:
        return len(self._completion.outputs)

    def torch(self, name: str) -> Any:
        """An output as a torch tensor over the same memory."""
        import torch

        buffer = self._buffer(name)
        flat = torch.from_numpy(self._completion.outputs[name])
        kinds = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
        kind = None if buffer.dtype is None else kinds.get(buffer.dtype.value)
        if kind is None:
            return torch.from_numpy(self[name])
        typed = flat.view(getattr(torch, kind))
        return typed if buffer.shape is None else typed.reshape(buffer.shape)

    @property
    def latency_ns(self) -> int:
        """Nanoseconds from the start of the request on the devices to its end.

        A request starts when the devices have it and the request before it in its slot has ended.
        """
        return self._completion.ended_ns - self._completion.started_ns

    @property
    def printed(self) -> str:
        """The text that the kernels printed."""
        return self._completion.printed

    @property
    def events(self) -> tuple[TimelineEvent, ...]:
        """The timeline of every device, if the runtime was made with `timeline=True`."""
        return self._completion.events


class Runtime:
    """A plan on its devices, ready for requests."""

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str],
        *,
        backend: str = BackendName.AUTO,
        targets: Mapping[str, str] | None = None,
        slots: int | None = None,
        sequences: int | None = None,
        policy: str | None = None,
        data: Data | None = None,
        data_root: str | os.PathLike[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        seed: int = 0,
        max_steps: int | None = None,
        time_limit_s: float = DEFAULT_LIMIT_S,
        throttle_bytes_per_s: float | None = None,
        timeline: bool = False,
        isolated: bool = False,
        hosts: str | os.PathLike[str] | KeptHosts | None = None,
    ) -> None:
        """Check the plan and load it onto its devices; the options are those of `tessc run`.

        `hosts` is a file that says which devices are on which hosts, or `KeptHosts`. With
        `isolated`, replicas that share no GPU are in processes of their own: a fault ends one of
        them, and `restart` starts it again.

        A `Plan` that was never a file finds contents beside its traces.
        """
        check_plan_given(plan)
        root = os.fspath(data_root) if isinstance(data_root, os.PathLike) else data_root
        folder = os.fspath(weights) if isinstance(weights, os.PathLike) else weights
        options = ServingOptions(
            backend=backend,
            targets=targets,
            slots=slots,
            sequences=sequences,
            policy=policy,
            data=data,
            data_root=root,
            weights=folder,
            seed=seed,
            max_steps=max_steps,
            limit_s=time_limit_s,
            throttle_bytes_per_s=throttle_bytes_per_s,
            timeline=timeline,
            hosts=os.fspath(hosts) if isinstance(hosts, os.PathLike) else hosts,
            spelled={"limit_s": "time_limit_s"},
        )
        self._open(plan, options, isolated)

    def _open(
        self, plan: Plan | str | os.PathLike[str], options: ServingOptions, isolated: bool
    ) -> None:
        opened = open_served(plan, options)
        table = options.read_hosts()
        choice = choose_backend(opened, options.backend, options.find_targets(), hosts=table)
        count = sum(replica.lowered.lanes for replica in opened.replicas)
        materials = served_materials(opened, options, choice.backend)
        self.plan = opened.plan
        self.diagnostics = opened.diagnostics
        self.backend = choice.backend
        self.sequences = count
        self.slots = sum(replica.lowered.slots for replica in opened.replicas)
        self.traces = tuple(trace.name for trace in opened.plan.traces)
        self.programs = opened.programs
        self.graphs = opened.graphs
        self.replicas = opened.replicas
        self.policies = opened.policies
        self.ways = opened.ways
        self._inputs = [inputs_of(program) for program in opened.programs]
        self._numbers = itertools.count()
        self._process = os.getpid()
        path = plan if isinstance(plan, Plan) else os.path.abspath(os.fspath(plan))
        self._serving = Serving(opened, materials, choice, options, given=path, isolated=isolated)
        self.capacity = self._serving.capacity

    def submit(
        self,
        inputs: Mapping[str, object],
        *,
        sequence: int = 0,
        trace: str | int | None = None,
    ) -> RequestHandle[Result]:
        """Start a request when its turn comes; waits while `capacity` requests are under way.

        Requests of one `sequence` share states and keep their order. `trace` is the name or number
        of a trace, and may be left out if there is only one. A callback of the handle delays
        requests that end after it.
        """
        self._check_process()
        number = self._sequence(sequence)
        index = self._trace(trace)
        self._check_served(number, index)
        program = self.programs[index]
        locate = partial(self._serving.locate, sequence=number)
        content, in_place = read_inputs(self._inputs[index], inputs, locate)
        return self._serving.submit(
            content,
            in_place=in_place,
            sequence=number,
            trace=index,
            number=next(self._numbers),
            finish=partial(Result, program),
        )

    def _check_served(self, sequence: int, trace: int) -> None:
        """Refuse a request of a trace that the replica of the sequence does not serve."""
        places = self._serving.sequences
        if self.replicas[places[sequence][0]].serves(trace) <= 0:
            able = [n for n, (own, _) in enumerate(places) if self.replicas[own].serves(trace) > 0]
            raise TesseraError.of(
                "TSR5053",
                f"the replica of sequence {sequence} does not serve `{self.traces[trace]}`",
                hint=f"sequences that do: {', '.join(map(str, able))}",
            )

    def states(self, sequence: int = 0) -> dict[str, TypedArray]:
        """Copies of a sequence's states by name, once its requests are done."""
        self._check_process()
        contents = self._serving.read_states(self._sequence(sequence))
        buffers = self._state_buffers()
        return {name: typed_array(buffers[name], content) for name, content in contents.items()}

    def set_states(
        self, states: Mapping[str, object], sequence: int = 0, *, rows: slice | int | None = None
    ) -> None:
        """Set states of a sequence by name, once its requests are done; other states are kept.

        With `rows`, set only these rows along the first axis of each state.
        """
        self._check_process()
        number = self._sequence(sequence)
        buffers = self._state_buffers()
        if not isinstance(states, Mapping):
            raise wrong_type("states", states, "a mapping of names to arrays")
        content = {}
        for name, given in states.items():
            if name not in buffers:
                known = ", ".join(f"`{known_name}`" for known_name in buffers) or "none"
                raise TesseraError.of(
                    "TSR5053", f"`{name}` is no state", notes=(f"states: {known}",)
                )
            content[name] = state_rows(buffers[name], given, rows)
        self._serving.write_rows(number, content)

    def reset_states(self, sequence: int = 0, *, rows: slice | int | None = None) -> None:
        """Reset a sequence to its initial states; with `rows`, only these rows of each state."""
        self._check_process()
        number = self._sequence(sequence)
        buffers = self._state_buffers()
        first = self._serving.first_states(number)
        given = {
            name: first[name] if rows is None else of_rows(buffer, first[name], rows)
            for name, buffer in buffers.items()
        }
        self.set_states(given, number, rows=rows)

    def move_rows(
        self,
        source: int,
        target: int,
        rows: Sequence[tuple[int | Sequence[int], int | Sequence[int]]],
        *,
        tokens: Sequence[int] | None = None,
        token_axis: int = 0,
    ) -> MoveHandle:
        """Hand rows of the states of one sequence over to another, as soon as both are idle.

        `rows` has pairs: a row of the source and the row of the target that it goes to, or the
        blocks of either, in order. Bytes that no later step reads do not go. With `token_axis`, the
        length of the second axis of states that counts tokens of a row or block, only the first
        `tokens` of each pair go. Requests that were submitted before this come first, and later
        ones of both sequences come after it. What the target rows held is lost. If one replica
        fails, so does the handle, with a `ServiceFault` that has its number as `replica`.
        """
        self._check_process()
        ends = self._sequence(source), self._sequence(target)
        if ends[0] == ends[1]:
            raise TesseraError.of("TSR5053", "rows move from one sequence to another")
        counts: Sequence[int | None] = [None] * len(rows) if tokens is None else tokens
        if len(counts) != len(rows):
            message = f"`tokens` has {len(counts)} numbers for {len(rows)} rows"
            raise TesseraError.of("TSR5053", message)
        moved = [
            MovedSequence(_row_place(here), _row_place(there), count)
            for (here, there), count in zip(rows, counts, strict=True)
        ]
        return self._serving.move(*ends, moved, token_axis)

    def _state_buffers(self) -> dict[str, Buffer]:
        return {
            buffer.name: buffer
            for program in self.programs
            for buffer in program.buffers
            if buffer.role is Role.STATE
        }

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of sequences that a fault ends together; each sequence is in one group."""
        return self._serving.groups

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> bool:
        """Whether inputs of a trace may be outputs of the previous request of their sequence.

        Requests then pass a `service.EarlierOutput` for these inputs, and are handed over before
        the previous request has ended. Call this before any request is submitted: it prepares the
        devices.
        """
        return self._serving.prepare_chain(trace, inputs)

    def processes(self) -> list[int]:
        """The processes of replicas that run in processes of their own."""
        return self._serving.processes()

    def restart(self, sequence: int) -> None:
        """After a fault, restart the replicas of a sequence's group with initial states."""
        self._check_process()
        self._serving.restart(self._sequence(sequence))

    def close(self, *, wait: bool = True) -> None:
        """Release the devices after the requests under way, or at once with `wait=False`."""
        self._serving.close(wait=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(wait=kind is None)

    def _check_process(self) -> None:
        """Refuse a forked process: it has the runtime's memory, but none of its threads."""
        if os.getpid() != self._process:
            raise TesseraError.of(
                "TSR5050",
                "the runtime belongs to another process",
                notes=(f"process {self._process} made it, this is {os.getpid()}",),
                hint="make a `Runtime` in this process, or submit where it was made",
            )

    def _sequence(self, sequence: int) -> int:
        """The number of a sequence of this runtime; raises TSR5053 for any other value."""
        number = check_number("sequence", sequence)
        if not 0 <= number < self.sequences:
            notes = (f"sequences: {self.sequences}",)
            raise TesseraError.of("TSR5053", f"there is no sequence {number}", notes=notes)
        return number

    def _trace(self, trace: str | int | None) -> int:
        if trace is None and len(self.traces) == 1:
            return 0
        if isinstance(trace, str) and trace in self.traces:
            return self.traces.index(trace)
        if trace is not None and not isinstance(trace, str):
            trace = check_number("trace", trace)
            if 0 <= trace < len(self.traces):
                return trace
        what = "say which trace the request is of" if trace is None else f"no trace `{trace}`"
        raise TesseraError.of("TSR5053", what, hint=f"the traces are: {', '.join(self.traces)}")


def _row_place(given: int | Sequence[int]) -> RowPlace:
    """A row, or blocks."""
    if isinstance(given, int):
        return RowPlace(given)
    return RowPlace(blocks=tuple(given))
