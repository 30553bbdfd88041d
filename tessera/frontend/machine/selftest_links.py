"""Links as a self-test measured them: the document of `tessc selftest` as a machine.

In: the text of the document, or a machine and the data. Out: a `Machine`. Devices match by name. A
link has the speed of its copies and a latency such that `Machine.exchange_ns` of 64 KB is the
median that was measured from the end of a step to the start of the one that waits for it:

    latency = exchange(64 KB) - 64 KB / speed - 2 * (transfer + 64 KB at each end)

`transfer`, the time that a transfer takes from each end, is not measured. Where the exchange leaves
no room for it, it is as much as fits. Documents from before exchanges were measured have only
copies; there the latency is the time of the smallest copy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.text.nested import is_deep
from tessera.frontend.text.shapes import shaped
from tessera.ir.plan.machine import EXCHANGED_BYTES, DeviceId, Link, Machine

SELFTEST_SCHEMA = "tessera-selftest/1"
SELFTEST_LINK = "pcie"
# Measured times from 0 to an hour, speeds above zero.
_Ns = Annotated[float, Meta(ge=0, le=3.6e12)]
_Speed = Annotated[float, Meta(ge=1, le=1e18)]
_Size = Annotated[int, Meta(ge=1)]
_Pair = tuple[str, str]


class _SelftestSettings(Struct):
    devices: str


class _LinkRow(Struct):
    source: str
    target: str
    latency_ns: _Ns
    bytes_per_second: _Speed | None = None


class _ExchangeRow(Struct):
    source: str
    target: str
    bytes: _Size
    ns: _Ns


class _SelftestFile(Struct):
    schema: str
    settings: _SelftestSettings
    links: list[_LinkRow]
    exchanges: list[_ExchangeRow] = []


def machine_of_selftest(text: str, name: str) -> Machine:
    """The machine on which a self-test ran."""
    file = _read(_json(text, name), name)
    return _with_links(machine_of(file.settings.devices, SELFTEST_LINK), file)


def with_selftest(machine: Machine, text: str, name: str) -> Machine:
    """A machine with the links between those of its devices that a self-test has tried."""
    file = _read(_json(text, name), name)
    names = {device.name for device in machine.devices}
    tried = {(row.source, row.target) for row in file.links}
    if not any({*pair} <= names for pair in tried):
        there = ", ".join(f"`{own}`" for own in dict.fromkeys(source for source, _ in tried))
        raise _bad(
            f"`{name}` has no links between devices of this machine",
            f"it has {there or 'none'}; here are {', '.join(f'`{own}`' for own in sorted(names))}",
        )
    return _with_links(machine, file)


def with_measured_links(machine: Machine, data: Mapping[str, object]) -> Machine:
    """A machine with the links of a self-test that is under way."""
    return _with_links(machine, _read(dict(data), "<selftest>"))


def _json(text: str, name: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise _bad(f"`{name}` is nested too deeply") from None
    except ValueError as problem:
        raise _bad(f"`{name}` is not JSON: {problem}") from None


def _read(data: object, name: str) -> _SelftestFile:
    if is_deep(data):
        raise _bad(f"`{name}` is nested too deeply")
    if not isinstance(data, dict) or data.get("schema") != SELFTEST_SCHEMA:
        raise _bad(f"`{name}` is no self-test: its `schema` must be `{SELFTEST_SCHEMA}`")
    return shaped(
        data,
        _SelftestFile,
        lambda why, hint: _bad(f"`{name}` is no self-test: {why}", hint),
        (_SelftestFile, _SelftestSettings, _LinkRow, _ExchangeRow),
    )


def _with_links(machine: Machine, file: _SelftestFile) -> Machine:
    """What several links share is as fast as the fastest; slices keep the memory they share."""
    names = {device.id: device.name for device in machine.devices}
    cards = {device.id: device.card for device in machine.devices}
    rows = {(row.source, row.target): row for row in file.links}
    inside = {
        pair: channel.bytes_per_second
        for channel in machine.channels
        for pair in channel.pairs
        if all(cards[a] == cards[b] for a, b in channel.pairs)
    }

    def copied(link: Link) -> Link:
        row = rows.get((names[link.source], names[link.target]))
        if row is None or row.bytes_per_second is None:
            return link
        speed = min(row.bytes_per_second, inside.get((link.source, link.target), float("inf")))
        return replace(link, bytes_per_second=speed, latency_ns=row.latency_ns)

    links = tuple(map(copied, machine.links))
    speeds = {(link.source, link.target): link.bytes_per_second for link in links}
    channels = tuple(
        channel
        if channel.pairs[0] in inside
        else replace(channel, bytes_per_second=max(speeds[pair] for pair in channel.pairs))
        for channel in machine.channels
    )
    return _with_exchanges(replace(machine, links=links, channels=channels), file, names)


def _with_exchanges(
    machine: Machine, file: _SelftestFile, names: Mapping[DeviceId, str]
) -> Machine:
    """The machine with latencies such that exchanges take what they took."""
    curves: dict[_Pair, dict[int, float]] = {}
    for row in file.exchanges:
        curves.setdefault((row.source, row.target), {})[row.bytes] = row.ns
    no_ends = replace(machine, transfer_ns=0.0)
    rest: dict[int, float] = {}
    for index, link in enumerate(machine.links):
        times = curves.get((names[link.source], names[link.target]))
        if times:
            size = min(times, key=lambda nbytes: abs(nbytes - EXCHANGED_BYTES))
            rest[index] = times[size] - no_ends.exchange_ns(replace(link, latency_ns=0.0), size)
    if not rest:
        return machine
    transfer_ns = max(0.0, min(machine.transfer_ns, min(rest.values()) / 2))
    links = tuple(
        link
        if index not in rest
        else replace(link, latency_ns=max(0.0, rest[index] - 2 * transfer_ns))
        for index, link in enumerate(machine.links)
    )
    return replace(machine, links=links, transfer_ns=transfer_ns, measured_links=len(rest))


def _bad(headline: str, hint: str | None = None) -> TesseraError:
    return TesseraError.of("TSR3005", headline, hint=hint)
