"""The bytes that a run starts from: weights, states of sequences, inputs of requests.

In: an open plan, the file that `--data` or the trace names, and a seed. Out: contents by buffer
name. A trace names a plain file in the folder of the plan; no other file is opened because a trace
names it.

Contents that no file has are seeded: weights by the seed, the states of sequence n by seed + n, the
inputs of request n by seed + n. Inputs in the file of contents are those of request 0, and also of
the others if a seed would only give zeros (integers, untyped bytes). States in the file are those
of every sequence; `with_own_states` gives sequences different states, for runs whose results are
not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tessera.backend.ptx_executor.memory.host_memory import available_bytes
from tessera.backend.service import Bytes
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error
from tessera.driver.run.data_files import Data, Sources, data_files, opened_checkpoint
from tessera.driver.run.given_inputs import GivenInput, read_given
from tessera.driver.run.open_plan import OpenPlan
from tessera.driver.run.schedule import Turn
from tessera.ir.program.program import Buffer, Program, Role
from tessera.ir.program.seeded import LazyContents, Seeded, Source, seeded_bytes
from tessera.ir.progress import Count

# Bytes of seeded floats that are certainly not all zero.
_SURELY_MORE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """The contents that every replica of a run starts from, and the inputs of its requests."""

    weights: LazyContents
    states: tuple[LazyContents, ...]
    fillings: tuple[Mapping[str, Bytes], ...]
    first_inputs: tuple[Mapping[str, Bytes], ...]
    given_inputs: Mapping[str, GivenInput]
    programs: tuple[Program, ...]
    names: tuple[str, ...]
    seed: int

    def inputs(self, request: int, trace: int, turn: int) -> dict[str, Bytes]:
        """The inputs of a request, which is the `turn`-th of its trace."""
        contents = {}
        for buffer in self.programs[trace].buffers:
            if buffer.role is Role.INPUT:
                given = self._given(buffer, trace)
                if given is not None:
                    contents[buffer.name] = given.row(buffer, turn)
                else:
                    contents[buffer.name] = self._seeded(buffer, trace, request)
        return contents

    def made_bytes(self, trace: int) -> int:
        """Bytes of those inputs of a request that no file has."""
        return sum(
            buffer.bytes
            for buffer in self.programs[trace].buffers
            if buffer.role is Role.INPUT and self._given(buffer, trace) is None
        )

    def _seeded(self, buffer: Buffer, trace: int, request: int) -> Bytes:
        first = self.first_inputs[trace].get(buffer.name)
        if first is not None and request == 0:
            return first
        seeded = seeded_bytes(buffer, self.seed + request)
        return seeded if first is None or seeded.any() else first

    def with_own_states(self, kept: Container[int]) -> Materials:
        """Different states in all sequences but `kept`, if a seed gives more than zeros."""
        buffers = [b for program in self.programs for b in program.buffers if b.role is Role.STATE]
        states = []
        for sequence, given in enumerate(self.states):
            own = {name: given.source(name) for name in given}
            for buffer in buffers if sequence not in kept else ():
                seeded = Seeded(buffer, self.seed + sequence)
                is_from_file = not isinstance(own[buffer.name], Seeded)
                own[buffer.name] = (
                    seeded if is_from_file and _says_more(seeded) else own[buffer.name]
                )
            states.append(LazyContents(own))
        return replace(self, states=tuple(states))

    def _given(self, buffer: Buffer, trace: int) -> GivenInput | None:
        named = self.given_inputs.get(f"{self.names[trace]}/{buffer.name}")
        return self.given_inputs.get(buffer.name) if named is None else named

    def not_given(self) -> list[str]:
        """The inputs that the file of inputs does not have, each once."""
        missing = {
            buffer.name: None
            for trace, program in enumerate(self.programs)
            for buffer in program.buffers
            if buffer.role is Role.INPUT and self._given(buffer, trace) is None
        }
        return list(missing)

    def requests_given(self) -> int | None:
        """The number of requests that inputs are given for; None if the file does not say."""
        if len(self.programs) > 1:
            return None
        known = {count: buffer.name for buffer, count in self._counts(0)}
        counts = {count: name for count, name in known.items() if count > 1}
        if len(counts) > 1:
            said = ", ".join(f"`{name}` for {count}" for count, name in sorted(counts.items()))
            raise TesseraError.of(
                "TSR5053",
                f"inputs are given for different numbers of requests: {said}",
                hint="say how many to run with `--requests N`",
            )
        return max(known, default=None)

    def check_enough(self, turns: Sequence[Turn]) -> None:
        """Refuse a run that has more requests of a trace than inputs for them."""
        for trace in range(len(self.programs)):
            wanted = sum(turn.trace == trace for turn in turns)
            for buffer, count in self._counts(trace):
                if 1 < count < wanted:
                    raise TesseraError(_too_few(buffer, count, wanted))

    def _counts(self, trace: int) -> Iterator[tuple[Buffer, int]]:
        """The inputs of a trace that are given, and for how many requests."""
        for buffer in self.programs[trace].buffers:
            given = self._given(buffer, trace) if buffer.role is Role.INPUT else None
            rows = None if given is None else given.rows(buffer)
            if rows is not None:
                yield buffer, rows


def read_materials(
    opened: OpenPlan,
    *,
    sequences: int,
    seed: int = 0,
    data: Data | None = None,
    inputs: str | None = None,
    data_root: str | None = None,
    weights: str | None = None,
    on_host: bool = True,
    count: Count = lambda done, total: None,
) -> Materials:
    """Read and check all contents; `sequences` counts those of all replicas.

    `on_host`: devices are processes of this machine, which hold all contents in its memory. `count`
    is called with the number of bytes read and their total.
    """
    if on_host or _unpacks(opened, data):
        _check_room(opened, sequences)
    shared: dict[str, Source] = {}
    kept: dict[str, tuple[Buffer, Bytes | None]] = {}
    fillings: list[dict[str, Bytes]] = [{} for _ in opened.programs]
    first: list[dict[str, Bytes]] = [{} for _ in opened.programs]
    with opened_checkpoint(weights, data_root) as checkpoint:
        sources = Sources(
            programs=opened.programs,
            folders=opened.folders,
            files=data_files(data, [planned.name for planned in opened.plan.traces]),
            checkpoint=checkpoint,
            root=data_root,
            seed=seed,
        )
        for trace, buffer, given in _contents(sources, count):
            match buffer.role:
                case Role.WEIGHT:
                    _merge(shared, buffer, given, seed, opened)
                case Role.STATE:
                    if buffer.name not in kept or given is not None:
                        kept[buffer.name] = buffer, given
                case Role.INPUT if given is not None:
                    first[trace][buffer.name] = given
                case Role.OUTPUT | Role.TEMP if given is not None:
                    fillings[trace][buffer.name] = given
                case _:
                    pass
    lazy = LazyContents(shared)
    _check_dependence(opened, lazy)
    return Materials(
        weights=lazy,
        states=tuple(LazyContents(dict(_states(kept, seed + n))) for n in range(sequences)),
        fillings=tuple(fillings),
        first_inputs=tuple(first),
        given_inputs={} if inputs is None else read_given(opened, inputs, data_root),
        programs=opened.programs,
        names=tuple(trace.name for trace in opened.plan.traces),
        seed=seed,
    )


def _contents(sources: Sources, count: Count) -> Iterator[tuple[int, Buffer, Bytes | None]]:
    """Every buffer of every trace with its contents from files, which stay mapped once read."""
    total = sum(b.bytes for program in sources.programs for b in program.declared_buffers())
    done = 0
    for trace, program in enumerate(sources.programs):
        with sources.open(trace) as contents:
            for buffer in program.declared_buffers():
                given = contents.read(buffer) if contents.is_given(buffer) else None
                done += buffer.bytes
                count(done, total)
                yield trace, buffer, given


def _unpacks(opened: OpenPlan, data: Data | None) -> bool:
    """Whether contents are unpacked from files that cannot be mapped."""
    files = [file.path for file in data_files(data, [trace.name for trace in opened.plan.traces])]
    named = files or [program.resident or "" for program in opened.programs]
    return any(name.endswith(".npz") for name in named)


def _check_room(opened: OpenPlan, sequences: int) -> None:
    """Raise TSR5020 if all contents do not fit memory, before any are read."""
    sizes: dict[tuple[Role, str], int] = {}
    private = 0
    for program in opened.programs:
        for buffer in program.declared_buffers():
            if buffer.role in (Role.WEIGHT, Role.STATE):
                sizes[buffer.role, buffer.name] = buffer.bytes
            else:
                private += buffer.bytes
    copies = {Role.WEIGHT: 1, Role.STATE: sequences}
    needed = private + sum(copies[role] * size for (role, _), size in sizes.items())
    free = available_bytes()
    if free is not None and needed > free:
        raise TesseraError.of(
            "TSR5020",
            f"the machine has no memory for the contents of `{opened.name}`: {needed} bytes",
            notes=(f"{free} bytes are available",),
            hint="run with fewer `--sequences`, or on a machine with more memory",
            exit_code=ExitCode.FAULT,
        )


def _too_few(buffer: Buffer, count: int, wanted: int) -> Diagnostic:
    return error(
        "TSR5053",
        f"input `{buffer.name}` is given for {count} requests, not for {wanted}",
        hint=f"run with `--requests {count}`, or give more",
    )


def _states(
    kept: Mapping[str, tuple[Buffer, Bytes | None]], seed: int
) -> Iterator[tuple[str, Source]]:
    for name, (buffer, given) in kept.items():
        yield name, Seeded(buffer, seed) if given is None else given


def _says_more(seeded: Seeded) -> bool:
    """Whether contents are not all zero, as those of many floats certainly are."""
    if seeded.is_zero or seeded.buffer.bytes > _SURELY_MORE_BYTES:
        return not seeded.is_zero
    return bool(seeded.read().any())


def _merge(
    weights: dict[str, Source], buffer: Buffer, given: Bytes | None, seed: int, opened: OpenPlan
) -> None:
    """Merge a weight: weights of one name are one weight, whichever trace's file has it."""
    known = weights.get(buffer.name)
    if given is None:
        weights.setdefault(buffer.name, Seeded(buffer, seed))
        return
    if isinstance(known, np.ndarray) and not _are_same(known, given):
        raise TesseraError.of(
            "TSR5057",
            f"weight `{buffer.name}` has different contents in two traces of `{opened.name}`",
            hint="weights of equal name are one: rename one of them",
        )
    weights[buffer.name] = given


def _are_same(known: Bytes, given: Bytes) -> bool:
    """Whether bytes are equal; bytes at the same address are, as in a file mapped once."""
    is_one = known.nbytes == given.nbytes and known.ctypes.data == given.ctypes.data
    return is_one or np.array_equal(known, given)


def _check_dependence(opened: OpenPlan, weights: Mapping[str, Bytes]) -> None:
    """Check that weights that decided which bytes a step touches have the same contents."""
    for graph, program in zip(opened.graphs, opened.programs, strict=True):
        for entry in graph.contents:
            name = program.buffers[entry.buffer].name
            if hashlib.sha256(weights[name].data).hexdigest() != entry.sha256:
                raise TesseraError.of(
                    "TSR5057",
                    f"weight `{name}` is not the one that the plan depends on",
                    hint="plan again with `tessc plan`",
                )
