"""The GPUs that exist or are on offer: kinds, the number of each, and the links between them.

In: `--gpus`, `--have`, `--most`, or a machine file. Out: an `Offered`: kinds, and a `Machine` that
holds as many GPUs of each kind as one unit can use. GPUs of one kind in different hosts of a
machine file are different kinds, so that a unit is never spread over hosts by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.gpus import DEFAULT_LINK, GpuEntry, build_machine
from tessera.ir.plan.machine import (
    Card,
    CardId,
    Channel,
    Device,
    DeviceId,
    Gpu,
    Link,
    Machine,
)

LARGEST_UNIT = 16
"""Most GPUs of one kind in one unit."""
MOST_GPUS = 100_000
_MOST_KINDS = 12
_ENTRY = re.compile(r"(?:([0-9]+)x)?([A-Za-z0-9][\w .-]*?)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """GPUs that are alike. `most` is their number; infinite means no limit.

    `usd_per_hour` is None if no price is known, and 0 for GPUs that exist already (`have`).
    """

    label: str
    gpu: Gpu
    most: float
    usd_per_hour: float | None
    price_source: str
    node: str = ""
    have: bool = False


@dataclass(frozen=True, slots=True)
class Offered:
    """Kinds of GPUs, and a machine with some of each; `kind_of` gives the kind of each device."""

    kinds: tuple[GpuKind, ...]
    machine: Machine
    kind_of: tuple[int, ...]

    def devices(self, kind: int, count: int, after: int = 0) -> list[int]:
        """`count` devices of a kind, without its first `after`."""
        own = [device for device, k in enumerate(self.kind_of) if k == kind]
        return own[after : after + count]


def offered_by_list(
    gpus: str,
    have: str | None,
    most: Mapping[str, int],
    link: str = DEFAULT_LINK,
    *,
    prices: Mapping[str, float],
    memory: Mapping[str, int],
    endless: bool,
) -> Offered:
    """The kinds of two lists. `endless`: a kind without a number has no limit."""
    rows = [(*_entry(part, gpus), False) for part in gpus.split(",")] if gpus else []
    rows += [(*_entry(part, have), True) for part in have.split(",")] if have else []
    if not rows:
        raise _bad("there are no GPUs to choose from")
    for label in most:
        if not any(label in (name, find_gpu(name).key) for name, _, _ in rows):
            raise _bad(f"`--most {label}={most[label]}` names no GPU that is offered")
    kinds: list[GpuKind] = []
    for label, count, is_there in rows:
        gpu = find_gpu(label)
        limit = float(count) if count is not None else inf if endless and not is_there else 1.0
        if not is_there:
            limit = min(limit, *(n for name, n in most.items() if name in (label, gpu.key)), inf)
        price = next((prices[n] for n in (label, gpu.key) if n in prices), gpu.usd_per_hour)
        listed = price == gpu.usd_per_hour
        kinds.append(
            GpuKind(
                label=label,
                gpu=gpu,
                most=limit,
                usd_per_hour=0.0 if is_there else price,
                price_source="it is there" if is_there else gpu.price_source if listed else "given",
                have=is_there,
            )
        )
    names = [(kind.label, kind.have) for kind in kinds]
    if len(set(names)) < len(names):
        raise _bad(f"`{gpus}` names a GPU twice")
    if len(kinds) > _MOST_KINDS:
        raise _bad(f"{len(kinds)} kinds of GPUs are more than the {_MOST_KINDS} that are compared")
    entries = tuple(
        GpuEntry(int(min(kind.most, LARGEST_UNIT)), kind.gpu, None, kind.label)
        for kind in kinds
        if kind.most >= 1
    )
    machine = build_machine(entries, link, prices=prices, memory=memory)
    kind_of = [n for n, kind in enumerate(kinds) for _ in range(int(min(kind.most, LARGEST_UNIT)))]
    return Offered(tuple(kinds), machine, tuple(kind_of))


def offered_by_machine(machine: Machine, most: Mapping[str, int]) -> Offered:
    """The kinds of a machine file: cards that are alike, in one host."""
    if any(len(machine.slices_of(card.id)) != 1 for card in machine.cards):
        raise _bad("a fleet is of whole GPUs: the machine file has slices")
    keys: dict[tuple[object, ...], list[Card]] = {}
    for card in machine.cards:
        key = card.gpu.key, card.memory_bytes, card.usd_per_hour, card.node
        keys.setdefault(key, []).append(card)
    kinds = []
    kind_of = [0] * len(machine.devices)
    for number, cards in enumerate(keys.values()):
        first = cards[0]
        label = first.label
        limits = [n for name, n in most.items() if name in (label, first.gpu.key)]
        kinds.append(
            GpuKind(
                label=label,
                gpu=replace(first.gpu, memory_bytes=first.memory_bytes),
                most=float(min([len(cards), *limits])),
                usd_per_hour=first.usd_per_hour,
                price_source=first.gpu.price_source,
                node=first.node,
            )
        )
        for card in cards:
            kind_of[machine.slices_of(card.id)[0].id] = number
    if len(kinds) > _MOST_KINDS:
        raise _bad(f"{len(kinds)} kinds of GPUs are more than the {_MOST_KINDS} that are compared")
    return Offered(tuple(kinds), machine, tuple(kind_of))


def part_of_machine(machine: Machine, devices: Sequence[int]) -> Machine:
    """The machine with only these devices, renumbered in this order."""
    number = {device: new for new, device in enumerate(devices)}
    cards = [machine.cards[machine.devices[device].card] for device in devices]
    return Machine(
        cards=tuple(replace(card, id=CardId(n)) for n, card in enumerate(cards)),
        devices=tuple(
            Device(id=DeviceId(n), name=old.name, card=CardId(n), sms=old.sms)
            for n, old in enumerate(machine.devices[device] for device in devices)
        ),
        links=tuple(
            Link(
                source=DeviceId(number[link.source]),
                target=DeviceId(number[link.target]),
                bytes_per_second=link.bytes_per_second,
                latency_ns=link.latency_ns,
            )
            for link in machine.links
            if link.source in number and link.target in number
        ),
        channels=tuple(
            Channel(name=channel.name, bytes_per_second=channel.bytes_per_second, pairs=pairs)
            for channel in machine.channels
            if (
                pairs := tuple(
                    (DeviceId(number[a]), DeviceId(number[b]))
                    for a, b in channel.pairs
                    if a in number and b in number
                )
            )
        ),
        link_name=machine.link_name,
        transfer_ns=machine.transfer_ns,
    )


def _entry(part: str, text: str) -> tuple[str, int | None]:
    match = _ENTRY.match(part.strip())
    if match is None or ":" in part:
        raise _bad(f"`{part.strip()}` in `{text}` is no GPU with a count")
    find_gpu(match[2])
    count = None
    if match[1] is not None:
        count = int(match[1]) if len(match[1]) <= len(str(MOST_GPUS)) else MOST_GPUS + 1
        if not 0 < count <= MOST_GPUS:
            raise _bad(f"`{part.strip():.60}`: a count is from 1 to {MOST_GPUS}")
    return match[2].lower(), count


def _bad(headline: str) -> TesseraError:
    return TesseraError.of(
        "TSR3025",
        headline,
        hint="write kinds with counts: `4xa100,4xl40s,2xh100`; whole GPUs, each kind once",
    )
