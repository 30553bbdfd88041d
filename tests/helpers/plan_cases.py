"""Random traces for the judge of plans: buffers, steps with made-up accesses, placements."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty, Pin
from tessera.ir.graph.graph import GraphBuffer, KernelGraph, Node
from tessera.ir.graph.region import Affine, Descriptor, Dimension, Interval, Region, WholeBuffer
from tessera.ir.program.program import (
    Buffer,
    BufferId,
    LaunchId,
    LibraryCall,
    Pointer,
    PointerTable,
    PointerWord,
    Program,
    Role,
)
from tessera.wording import Wording

Effect = tuple[str, str, Region]
"""Buffer, what happens (`read`, `may`, `must`, `atomic`), and where."""


@dataclass(frozen=True)
class Case:
    """The traces of a replica, and where their steps run."""

    programs: tuple[Program, ...]
    graphs: tuple[KernelGraph, ...]
    placements: tuple[tuple[str, ...], ...]


def build(
    buffers: Sequence[tuple[str, int, Role]],
    steps: Sequence[Sequence[Effect]],
    *,
    words: dict[str, dict[int, str]] | None = None,
    pinned: Sequence[int] = (),
) -> tuple[Program, KernelGraph]:
    """A program and its graph (without edges: the judge needs none) from a few words."""
    ids = {name: BufferId(number) for number, (name, _, _) in enumerate(buffers)}
    made = tuple(
        Buffer(id=ids[name], name=name, bytes=size, role=role) for name, size, role in buffers
    )
    tables = tuple(
        PointerTable(
            ids[name],
            tuple(PointerWord(at, Pointer(ids[target])) for at, target in sorted(row.items())),
        )
        for name, row in (words or {}).items()
    )
    program = Program(
        buffers=made,
        pointer_tables=tables,
        steps=tuple(
            LibraryCall(id=LaunchId(number), operator=f"k{number}", reads=(), writes=())
            for number in range(len(steps))
        ),
    )
    nodes = tuple(
        Node(
            id=LaunchId(number),
            name=f"k{number}",
            accesses=tuple(_access(ids[name], how, where) for name, how, where in effects),
            pins=(Pin(Wording("it follows pointers")),) if number in pinned else (),
        )
        for number, effects in enumerate(steps)
    )
    graph_buffers = tuple(
        GraphBuffer(id=one.id, name=one.name, bytes=one.bytes, role=one.role) for one in made
    )
    return program, KernelGraph(buffers=graph_buffers, nodes=nodes, edges=())


_KINDS = {
    "read": (AccessKind.READ, Certainty.MAY),
    "may": (AccessKind.WRITE, Certainty.MAY),
    "must": (AccessKind.WRITE, Certainty.MUST),
    "atomic": (AccessKind.ATOMIC, Certainty.MAY),
}


def _access(buffer: BufferId, how: str, where: Region) -> Access:
    kind, certainty = _KINDS[how]
    return Access(
        buffer=buffer, kind=kind, certainty=certainty, address=AddressClass.DIRECT, region=where
    )


_LASTING = (Role.STATE, Role.WEIGHT)
_TABLES = {
    "pi": Role.INPUT,
    "pt": Role.TEMP,
    "po": Role.OUTPUT,
    "ps": Role.STATE,
    "pw": Role.WEIGHT,
}


def random_case(
    seed: int,
    *,
    most_steps: int = 7,
    most_devices: int = 3,
    tables: bool = False,
    wide: bool = False,
) -> Case:
    """One to two traces that share weights and states by name, on one to three devices.

    With `tables` there are buffers whose first words hold addresses. If it is `wide`, weights and
    states are so large that a device may hold a part of them.
    """
    rng = random.Random(seed)
    devices = [f"g{n}" for n in range(rng.randint(1, most_devices))]
    sizes = [300, 1300, 2000] if wide else [8, 64, 300]
    shared = [(f"s{n}", rng.choice(sizes), Role.STATE) for n in range(rng.randrange(3))] + [
        ("w0", 2000 if wide else 64, Role.WEIGHT)
    ]
    private = ["i0", "o0", "t0"]
    shared_words = {0: rng.choice(private), 8: "o0"}
    if tables:
        shared.append(("s9", 64, Role.STATE))
        shared_words = {at: rng.choice([*private, "w0", "s9", "w0"]) for at in (0, 8)}
    programs, graphs, placements = [], [], []
    for _ in range(rng.choice([1, 1, 2])):
        kept = ("w0", "s9") if tables else ()
        buffers = [row for row in shared if rng.random() < 0.85 or row[0] in kept]
        buffers += [
            (f"{role.value[0]}{n}", rng.choice([4, 64, 300, 600]), role)
            for role in (Role.INPUT, Role.OUTPUT, Role.TEMP)
            for n in range(rng.randint(1, 2 if role is not Role.TEMP else 3))
        ]
        if rng.random() < 0.15:
            buffers.append(("m.v", 32, Role.VARIABLE))
        words = {}
        for name, role in _TABLES.items() if tables else ():
            if rng.random() < 0.6:
                words[name] = shared_words if role in _LASTING else _random_words(rng, buffers)
                buffers.append((name, 64, role))
        steps = [_random_step(rng, buffers) for _ in range(rng.randint(1, most_steps))]
        program, graph = build(buffers, steps, words=words)
        programs.append(program)
        graphs.append(graph)
        placements.append(tuple(rng.choice(devices) for _ in steps))
    return Case(tuple(programs), tuple(graphs), tuple(placements))


def with_twins(case: Case, seed: int) -> Case:
    """The same, where about every second step is done by several devices."""
    rng = random.Random(seed)
    devices = sorted({"g0", "g1", *(device for part in case.placements for device in part)})
    programs, graphs, placements = [], [], []
    for program, graph, placement in zip(case.programs, case.graphs, case.placements, strict=True):
        nodes: list[Node] = []
        placed: list[str] = []
        twins = []
        for node, device in zip(graph.nodes, placement, strict=True):
            count = rng.choice([1, 1, 2, 2, len(devices)])
            rest = rng.sample([other for other in devices if other != device], count - 1)
            members = [LaunchId(len(nodes) + twin) for twin in range(count)]
            nodes += [replace(node, id=member) for member in members]
            placed += rng.sample([device, *rest], count)
            if count > 1:
                twins.append(tuple(members))
        steps = tuple(
            LibraryCall(id=node.id, operator=node.name, reads=(), writes=()) for node in nodes
        )
        programs.append(replace(program, steps=steps, twins=tuple(twins)))
        graphs.append(replace(graph, nodes=tuple(nodes), twins=tuple(twins)))
        placements.append(tuple(placed))
    return Case(tuple(programs), tuple(graphs), tuple(placements))


def _random_words(rng: random.Random, buffers: Sequence[tuple[str, int, Role]]) -> dict[int, str]:
    return {0: rng.choice(buffers)[0], 8: rng.choice(buffers)[0]}


def _random_step(rng: random.Random, buffers: Sequence[tuple[str, int, Role]]) -> list[Effect]:
    effects: list[Effect] = []
    for name, size, role in rng.sample(buffers, rng.randint(1, min(4, len(buffers)))):
        for _ in range(rng.choice([1, 1, 2])):
            how = rng.choice(["read", "may", "must", "must", "atomic"])
            how = "read" if role is Role.WEIGHT else how
            where = _random_region(rng, size)
            if name in _TABLES and how != "read":
                where = Interval(rng.choice([16, 20, 40]), size)  # no step overwrites addresses
            effects.append((name, how, where))
    return effects


def _random_region(rng: random.Random, size: int) -> Region:
    match rng.randrange(6):
        case 0 | 1:
            return WholeBuffer(Wording("for the test")) if rng.random() < 0.3 else Interval(0, size)
        case 2 if size >= 64:
            stride = rng.choice([16, 32])
            count = rng.randint(2, size // stride)
            start = rng.randrange(0, size - stride * (count - 1) - 8 + 1, 4)
            return Affine((Descriptor(start, rng.choice([4, 8]), (Dimension(stride, count),)),))
        case 3 if size >= 64:
            half = size // 8 * 4
            return Interval(0, half) if rng.random() < 0.5 else Interval(half, size)
        case _:
            start = rng.randrange(0, size, 4)
            return Interval(start, min(size, start + rng.choice([4, 8, 32, 256])))
