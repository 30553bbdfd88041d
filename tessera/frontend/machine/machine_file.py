"""A machine from a TOML file: cards, their slices and memory, links of single pairs, own GPUs.

    link = "100Gb/s"                # between all cards (with nodes: between nodes), or "none"
    transfer = "2us"                # what a transfer takes from each end
    selftest = "selftest.json"      # links as `tessc selftest` measured them, from this folder

    [[card]]
    gpu = "a100"                    # a name of the table, or of a [gpu.NAME] below
    count = 2
    memory = "76GB"
    price = 1.80
    slices = [84, 24]               # SMs; without it the card is one device

    [[link_between]]
    devices = ["a100-0", "l40s-0"]  # both directions
    bandwidth = "25GB/s"
    latency = "5us"

    [link_matrix]                   # from each device (a row) to each: "-" is no link
    devices = ["a100-0", "a100-1"]
    bandwidth = [["-", "300GB/s"], ["300GB/s", "-"]]
    latency = "2us"

    [[node]]                        # a host; then all cards are in nodes
    name = "left"
    link = "nvlink"                 # between its cards
    memory = "16GB"                 # of the host, for transfers to and from other nodes
    [[node.card]]
    gpu = "h100"
    count = 4

    [gpu.mine]                      # as `like`, but for what is given
    like = "l40s"
    sms = 100
    memory = "32GB"
    memory_bandwidth = "700GB/s"
    fp16_tflops = 250               # dense; other types of the tensor cores go with it

In: the file's text, or the document of a self-test. Out: a `Machine`. Unknown keys are errors. A
pair with a link of its own leaves the cards' ports and has a channel of that bandwidth in each
direction. A node has one port to the other nodes, which all its cards share.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.gpus import (
    DEFAULT_LINK,
    NO_LINK,
    GpuEntry,
    build_machine,
    check_memory,
)
from tessera.frontend.machine.machine_links import with_link, with_nodes
from tessera.frontend.machine.quantities import parse_bandwidth, parse_bytes, parse_time_ns
from tessera.frontend.machine.selftest_links import machine_of_selftest, with_selftest
from tessera.frontend.text.nested import is_deep
from tessera.frontend.text.readfile import read_source
from tessera.frontend.text.shapes import shaped
from tessera.ir.plan.machine import Gpu, Machine

T = TypeVar("T")
_MOST_TEXT = 1 << 20
_MOST_DOTS = 1000
_UNREAD = re.compile(r'"[^"\n]*"|#[^\n]*')
_ABSENT = ("-", NO_LINK)
# A number above zero, within reasonable limits.
_Number = Annotated[float, Meta(ge=1e-6, le=1e9)]


class _CardTable(Struct, forbid_unknown_fields=True):
    gpu: str
    count: Annotated[int, Meta(ge=1, le=256)] = 1
    memory: str | None = None
    price: _Number | None = None
    slices: list[Annotated[int, Meta(ge=1)]] | None = None


class _NodeTable(Struct, forbid_unknown_fields=True):
    name: str
    link: str = DEFAULT_LINK
    memory: str | None = None
    card: list[_CardTable] = []


class _PairTable(Struct, forbid_unknown_fields=True):
    devices: list[str]
    bandwidth: str
    latency: str | None = None


class _MatrixTable(Struct, forbid_unknown_fields=True):
    devices: list[str]
    bandwidth: list[list[str]]
    latency: str | None = None


class _GpuTable(Struct, forbid_unknown_fields=True):
    like: str
    sms: _Number | None = None
    memory: str | None = None
    memory_bandwidth: str | None = None
    price: _Number | None = None
    clock_mhz: _Number | None = None
    fp16_tflops: _Number | None = None


class _MachineTables(Struct, forbid_unknown_fields=True):
    link: str = DEFAULT_LINK
    transfer: str | None = None
    selftest: str | None = None
    card: list[_CardTable] = []
    node: list[_NodeTable] = []
    link_between: list[_PairTable] = []
    link_matrix: _MatrixTable | None = None
    gpu: dict[str, _GpuTable] = {}


def parse_machine(text: str, name: str = "<machine>") -> Machine:
    """The machine that a TOML text describes, or on which a self-test ran."""
    if text.lstrip().startswith("{"):
        return machine_of_selftest(text, name)
    _check_size(text, name)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise _bad(f"`{name}` is not TOML: {problem}") from None
    except RecursionError:
        raise _bad(f"`{name}` is nested too deeply") from None
    if is_deep(data):
        raise _bad(f"`{name}` is nested too deeply")
    file = shaped(
        data,
        _MachineTables,
        lambda why, hint: _bad(f"`{name}`: {why}", hint),
        (_MachineTables, _CardTable, _NodeTable, _PairTable, _MatrixTable, _GpuTable),
    )
    if file.card and file.node:
        raise _bad("either all cards are in a `[[node]]`, or none is")
    if not file.card and not file.node:
        raise _bad(f"`{name}` has no `[[card]]`")
    _check_nodes(file.node)
    own = {key: _own_gpu(key, gpu) for key, gpu in file.gpu.items()}
    entries = [entry for card in file.card for entry in _entries(card, own)]
    for node in file.node:
        inside = (entry for card in node.card for entry in _entries(card, own))
        entries += [replace(entry, node=node.name) for entry in inside]
    machine = build_machine(tuple(entries), file.link)
    if file.node:
        machine = with_nodes(machine, file.link, {node.name: node.link for node in file.node})
        machine = replace(machine, node_memory=tuple(_node_memory(file.node)))
    if file.transfer is not None:
        machine = replace(machine, transfer_ns=_quantity("transfer", file.transfer, parse_time_ns))
    if file.link_matrix is not None:
        machine = _with_matrix(machine, file.link_matrix)
    for pair in file.link_between:
        machine = _with_pair(machine, pair)
    if file.selftest is not None:
        path = os.path.join(os.path.dirname(name), file.selftest)
        machine = with_selftest(machine, read_source(path).text, path)
    return machine


def _check_size(text: str, name: str) -> None:
    """Refuse texts larger than any machine needs, and dotted keys, which take the TOML reader too
    long."""
    if len(text) > _MOST_TEXT:
        raise _bad(f"`{name}` is too large: more than {_MOST_TEXT} letters")
    if any(line.count(".") > _MOST_DOTS for line in _UNREAD.sub("", text).split("\n")):
        raise _bad(f"`{name}` is nested too deeply")


def _check_nodes(nodes: list[_NodeTable]) -> None:
    names: set[str] = set()
    for node in nodes:
        if node.name in names or not node.name:
            raise _bad(f"every node has a name of its own: `{node.name}`")
        if not node.card:
            raise _bad(f"the node `{node.name}` has no `[[node.card]]`")
        names.add(node.name)


def _node_memory(nodes: list[_NodeTable]) -> Iterator[tuple[str, int]]:
    """The bytes of host memory for transfers, by node, for nodes that give them."""
    for node in nodes:
        if node.memory is not None:
            yield node.name, _quantity("memory", node.memory, parse_bytes)


def _with_matrix(machine: Machine, matrix: _MatrixTable) -> Machine:
    """The machine with a separate link, or none, for each pair of the matrix."""
    ids = {device.name: device.id for device in machine.devices}
    names, width = matrix.devices, len(matrix.devices)
    if not all(name in ids for name in names):
        raise _bad(f"`devices` must be a list of {', '.join(f'`{name}`' for name in ids)}")
    if len(set(names)) != width:
        raise _bad("`devices` of `[link_matrix]` are named once each")
    if [len(row) for row in matrix.bandwidth] != [width] * width:
        raise _bad("`bandwidth` must have a row for each of the devices, and a column for each")
    latency = _latency(matrix.latency)
    for a, row in zip(names, matrix.bandwidth, strict=True):
        for b, cell in zip(names, row, strict=True):
            if a != b:
                absent = cell in _ABSENT
                speed = None if absent else _quantity("bandwidth", cell, parse_bandwidth)
                machine = with_link(machine, ids[a], ids[b], speed, latency)
    return machine


def _with_pair(machine: Machine, pair: _PairTable) -> Machine:
    names = pair.devices
    ids = {device.name: device.id for device in machine.devices}
    if len(names) != 2 or not all(name in ids for name in names):
        raise _bad(f"`devices` must be two of {', '.join(f'`{name}`' for name in ids)}: `{names}`")
    a, b = (ids[name] for name in names)
    if a == b:
        raise _bad(f"a link joins two devices: `{names}`")
    bandwidth = _quantity("bandwidth", pair.bandwidth, parse_bandwidth)
    latency = _latency(pair.latency)
    return with_link(with_link(machine, a, b, bandwidth, latency), b, a, bandwidth, latency)


def _latency(text: str | None) -> float | None:
    return None if text is None else _quantity("latency", text, parse_time_ns)


def _entries(card: _CardTable, own: dict[str, Gpu]) -> Iterable[GpuEntry]:
    gpu = own[card.gpu] if card.gpu in own else find_gpu(card.gpu)
    if card.memory is not None:
        memory = _quantity("memory", card.memory, parse_bytes)
        check_memory(gpu, memory)
        gpu = replace(gpu, memory_bytes=memory)
    gpu = _with_price(gpu, card.price)
    if card.slices is None:
        return [GpuEntry(card.count, gpu, None, card.gpu)]
    if not card.slices or sum(card.slices) > gpu.sms:
        sms = sum(card.slices)
        raise _bad(f"slices of {sms} SMs do not fit the {gpu.sms} SMs of {gpu.name}")
    slices = enumerate(card.slices)
    return [GpuEntry(1, gpu, sms, card.gpu, opens_card=n == 0) for n, sms in slices] * card.count


def _with_price(gpu: Gpu, price: float | None) -> Gpu:
    if price is None:
        return gpu
    return replace(gpu, usd_per_hour=price, price_source="machine file")


def _own_gpu(name: str, given: _GpuTable) -> Gpu:
    base = find_gpu(given.like)
    gpu = replace(base, key=name, name=name, like=base.key)
    if given.sms is not None:
        share = given.sms / gpu.sms
        rates = tuple(replace(rate, flops=rate.flops * share) for rate in gpu.rates)
        gpu = replace(gpu, sms=round(given.sms), rates=rates)
    if given.fp16_tflops is not None:
        gpu = _with_tensor_rate(gpu, given.fp16_tflops * 1e12)
    if given.clock_mhz is not None:
        gpu = replace(gpu, clock_mhz=given.clock_mhz)
    if given.memory is not None:
        gpu = replace(gpu, memory_bytes=_quantity("memory", given.memory, parse_bytes))
    if given.memory_bandwidth is not None:
        bandwidth = _quantity("memory_bandwidth", given.memory_bandwidth, parse_bandwidth)
        gpu = replace(gpu, memory_bandwidth=bandwidth)
    return _with_price(gpu, given.price)


def _with_tensor_rate(gpu: Gpu, flops: float) -> Gpu:
    """The GPU with another fp16 rate; the other types of its tensor cores change in proportion."""
    known = gpu.flops("fp16")
    if not known:
        raise _bad(f"{gpu.name} has no fp16 rate: `like` another GPU")
    rates = tuple(
        rate if rate.unit == "fp32" else replace(rate, flops=rate.flops * flops / known)
        for rate in gpu.rates
    )
    return replace(gpu, rates=rates)


def _quantity(key: str, text: str, parse: Callable[[str], T | None]) -> T:
    value = parse(text)
    if value is None or not value > 0:  # type: ignore[operator]
        raise _bad(f"`{key}` must be a quantity above zero with its unit: `{text}`")
    return value


def _bad(headline: str, hint: str | None = None) -> TesseraError:
    return TesseraError.of("TSR3005", headline, hint=hint)
