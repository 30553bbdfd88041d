"""The scene in which the kernel of a launch runs.

In: a launch, its kernel's code, the buffers and the `pointers` tables that are intact. Out: a
`Scene` and the objects behind its zones: buffers of the arguments in order of appearance, those
that intact tables point to, the module's variables, and one zone per table that stands for
"whatever the table points to".

The scene knows objects by their zones only, so launches that differ in nothing but the buffers
they are given have equal scenes; `key` is what makes two scenes equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import assert_never

import numpy as np

from tessera.ir.arrays import Ranges
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.layout import alignment, size_bytes
from tessera.passes.byte_sets import intervals
from tessera.passes.footprint.scene import Scene, Table
from tessera.passes.footprint.zones import FIRST, MOST, Zones, draw_zones

Words = Mapping[int, ir.Pointer]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSetting:
    """A scene, and the meaning of its zones: a buffer from an offset on, or a table's targets."""

    scene: Scene
    buffers: dict[int, ir.BufferId]
    offsets: dict[int, int]
    targets: dict[int, tuple[ir.BufferId, ...]]
    key: tuple[object, ...]


@dataclass(slots=True)
class _Layout:
    """The zones that are already assigned."""

    zone_of: dict[ir.BufferId, int]
    own: dict[int, int]
    next: int = FIRST

    def add(self, buffer: ir.BufferId) -> None:
        if buffer not in self.zone_of:
            self.zone_of[buffer] = self.next
            self.next += 1


class TooManyObjects(Exception):
    """More objects than there are zones."""


def build_setting(
    launch: ir.Launch,
    function: ptx.Function,
    variables: Mapping[str, ir.BufferId],
    tables: Mapping[ir.BufferId, Words],
    valued: frozenset[str] = frozenset(),
    known: Mapping[ir.BufferId, ir.KnownContents] = MappingProxyType({}),
    written: Mapping[ir.BufferId, Ranges] = MappingProxyType({}),
    draw: int = 0,
    holding: frozenset[ir.BufferId] = frozenset(),
) -> LaunchSetting:
    """The scene of a launch; `tables` holds the words of each buffer that are still pointers.

    `written` are the bytes of such buffers that may have been overwritten; `holding` are other
    buffers into which a launch puts addresses, or values computed from addresses.

    `valued` are the parameters whose value matters (`pointer_uses`). Each other parameter gets its
    own zone. `known` are weights whose contents may decide what the launch touches. `draw` is the
    number of the draw of made-up addresses.
    """
    special = {*known, *(buffer for buffer, words in tables.items() if words)}
    layout = _give_zones(launch, variables, _plain_arguments(launch, function, special, valued))
    reached = _follow_tables(layout, tables)
    if layout.next + len(reached) >= FIRST + MOST:
        raise TooManyObjects
    draws = draw_zones(frozenset(_words(launch.arguments)), layout.next + len(reached))
    zones = next(islice(draws, draw, None))
    image, offsets = _parameter_image(launch, function, zones, layout)
    zone_tables, targets = _tables(reached, tables, written, zones, layout)
    scene = Scene(
        zones=zones,
        grid=launch.grid,
        block=launch.block,
        cluster=cluster_size(launch, function),
        dynamic_shared=launch.shared_bytes,
        parameters=image,
        parameter_offsets=offsets,
        symbols={name: layout.zone_of[buffer] for name, buffer in variables.items()},
        tables=zone_tables,
        cooperative=launch.cooperative,
        ctas=launch.ctas,
        pointer_words=tuple(_pointer_words(launch, function, offsets)),
        holders=_holders(launch, layout, holding.union(tables)),
        contents={
            layout.zone_of[buffer]: np.frombuffer(contents.content, dtype=np.uint8)
            for buffer, contents in known.items()
            if buffer in layout.zone_of
        },
    )
    buffers = {zone: buffer for buffer, zone in layout.zone_of.items()}
    starts: dict[int, int] = {}
    for place, zone in layout.own.items():
        argument = launch.arguments[place]
        assert isinstance(argument, ir.Pointer)
        buffers[zone], starts[zone] = argument.buffer, argument.offset
    shared = Counter(buffers.values())
    alone = frozenset(zone for zone, buffer in buffers.items() if shared[buffer] == 1)
    scene = replace(scene, alone=alone)
    digests = tuple((zone, known[b].sha256) for b, zone in layout.zone_of.items() if b in known)
    key = (*_scene_key(scene), digests)
    return LaunchSetting(scene=scene, buffers=buffers, offsets=starts, targets=targets, key=key)


def _give_zones(
    launch: ir.Launch, variables: Mapping[str, ir.BufferId], plain: frozenset[int]
) -> _Layout:
    """Assign a zone to each pointer that is only a base, and to each other buffer."""
    layout = _Layout({}, {})
    for place, argument in enumerate(launch.arguments):
        if place in plain:
            layout.own[place] = layout.next
            layout.next += 1
            continue
        for pointer in argument_pointers((argument,)):
            layout.add(pointer.buffer)
    for buffer in variables.values():
        layout.add(buffer)
    return layout


def _scene_key(scene: Scene) -> tuple[object, ...]:
    """The key that equal scenes share, without the contents of weights."""
    return (
        scene.cooperative,
        scene.grid,
        scene.ctas,
        scene.block,
        scene.cluster,
        scene.dynamic_shared,
        scene.parameters,
        scene.zones,
        tuple(
            (zone, t.zone, t.offsets.tobytes(), t.targets.tobytes(), t.written.tobytes())
            for zone, t in scene.tables.items()
        ),
        tuple(scene.symbols.items()),
        tuple(sorted(scene.holders)),
        tuple(sorted(scene.alone)),
    )


def _plain_arguments(
    launch: ir.Launch,
    function: ptx.Function,
    special: Set[ir.BufferId],
    valued: frozenset[str],
) -> frozenset[int]:
    """The pointers that are only bases, into buffers without known words."""
    named = zip(function.parameters, launch.arguments, strict=False)
    return frozenset(
        place
        for place, (variable, argument) in enumerate(named)
        if isinstance(argument, ir.Pointer)
        and variable.name not in valued
        and argument.buffer not in special
    )


def _pointer_words(
    launch: ir.Launch, function: ptx.Function, offsets: Mapping[str, int]
) -> Iterator[int]:
    """The offsets of addresses in the bytes of the parameters."""
    for variable, argument in zip(function.parameters, launch.arguments, strict=False):
        match argument:
            case ir.Pointer():
                yield offsets[variable.name]
            case ir.ByValue():
                yield from (offsets[variable.name] + word.offset for word in argument.pointers)


def argument_pointers(arguments: tuple[ir.Argument, ...]) -> Iterator[ir.Pointer]:
    """The addresses among the arguments, including those in structs."""
    for argument in arguments:
        match argument:
            case ir.Pointer():
                yield argument
            case ir.ByValue():
                yield from (word.target for word in argument.pointers)
            case ir.Scalar():
                continue
            case _:
                assert_never(argument)


def _words(arguments: tuple[ir.Argument, ...]) -> Iterator[int]:
    """The 64-bit numbers that a kernel could find in the arguments."""
    for argument in arguments:
        if isinstance(argument, ir.Scalar):
            yield argument.bits
        elif isinstance(argument, ir.ByValue):
            content = argument.content
            yield from (
                int.from_bytes(content[i : i + 8], "little") for i in range(len(content) - 7)
            )


def _follow_tables(layout: _Layout, tables: Mapping[ir.BufferId, Words]) -> list[ir.BufferId]:
    """Assign zones to the targets of tables in reachable buffers; return these tables in order."""
    reached: list[ir.BufferId] = []
    pending = list(layout.zone_of)
    while pending:
        buffer = pending.pop(0)
        words = tables.get(buffer)
        if not words or buffer in reached:
            continue
        reached.append(buffer)
        for pointer in words.values():
            layout.add(pointer.buffer)
            pending.append(pointer.buffer)
    return reached


def _holders(launch: ir.Launch, layout: _Layout, holding: frozenset[ir.BufferId]) -> frozenset[int]:
    """The zones of buffers that hold addresses, or may have held addresses earlier."""
    zones = {zone for buffer, zone in layout.zone_of.items() if buffer in holding}
    for place, zone in layout.own.items():
        argument = launch.arguments[place]
        if isinstance(argument, ir.Pointer) and argument.buffer in holding:
            zones.add(zone)
    return frozenset(zones)


def _tables(
    reached: list[ir.BufferId],
    tables: Mapping[ir.BufferId, Words],
    written: Mapping[ir.BufferId, Ranges],
    zones: Zones,
    layout: _Layout,
) -> tuple[dict[int, Table], dict[int, tuple[ir.BufferId, ...]]]:
    placed: dict[int, Table] = {}
    targets: dict[int, tuple[ir.BufferId, ...]] = {}
    for place, buffer in enumerate(reached):
        words = sorted(tables[buffer].items())
        zone = layout.next + place
        addresses = [zones.address(layout.zone_of[p.buffer], p.offset) for _, p in words]
        placed[layout.zone_of[buffer]] = Table(
            np.array([offset for offset, _ in words], dtype=np.int64),
            np.array(addresses, dtype=np.uint64),
            zone,
            written.get(buffer, intervals.EMPTY),
        )
        targets[zone] = tuple(dict.fromkeys(p.buffer for _, p in words))
    return placed, targets


def _parameter_image(
    launch: ir.Launch, function: ptx.Function, zones: Zones, layout: _Layout
) -> tuple[bytes, dict[str, int]]:
    """The bytes of all parameters one after the other, and the offset of each."""
    image = bytearray()
    offsets: dict[str, int] = {}
    named = zip(function.parameters, launch.arguments, strict=False)
    for place, (variable, argument) in enumerate(named):
        align = alignment(variable)
        image.extend(bytes(-len(image) % align))
        offsets[variable.name] = len(image)
        own = layout.own.get(place)
        content = _argument_bytes(argument, zones, layout) if own is None else _word(zones, own)
        size = size_bytes(variable)
        image.extend(content if size is None else content[:size].ljust(size, b"\0"))
    return bytes(image), offsets


def _word(zones: Zones, zone: int) -> bytes:
    return zones.address(zone).to_bytes(8, "little")


def _argument_bytes(argument: ir.Argument, zones: Zones, layout: _Layout) -> bytes:
    def address(pointer: ir.Pointer) -> bytes:
        return zones.address(layout.zone_of[pointer.buffer], pointer.offset).to_bytes(8, "little")

    match argument:
        case ir.Pointer():
            return address(argument)
        case ir.Scalar():
            return argument.bits.to_bytes(argument.type.bytes, "little")
        case ir.ByValue():
            content = bytearray(argument.content)
            for word in argument.pointers:
                content[word.offset : word.offset + 8] = address(word.target)
            return bytes(content)
        case _:
            assert_never(argument)


def cluster_size(launch: ir.Launch, function: ptx.Function) -> ir.Triple | None:
    """The cluster's size, of the launch or of the kernel; None if neither says."""
    if launch.cluster is not None:
        return launch.cluster
    directives = [d for d in function.directives if "cluster" in d.name]
    for directive in directives:
        if directive.name.lstrip(".") == "reqnctapercluster" and directive.values:
            given = [integer_value(v) for v in directive.values if isinstance(v, ptx.Integer)]
            x, y, z = [size or 1 for size in (*given, 1, 1, 1)][:3]
            return x, y, z
    return None if directives else (1, 1, 1)
