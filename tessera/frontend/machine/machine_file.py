"""A machine from a TOML file: cards, their slices and memory, links of single pairs, own GPUs.

    link = "100Gb/s"                # between all cards (with nodes: between nodes), or "none"
    transfer = "2us"                # what a transfer takes from each end

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

In: the file's text. Out: a `Machine`. Unknown keys are errors. A pair with a link of its own leaves
the cards' ports and has a channel of that bandwidth in each direction. A node has one port to the
other nodes, which all its cards share.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

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
from tessera.frontend.text.nested import is_deep
from tessera.ir.plan.machine import Gpu, Machine

T = TypeVar("T")
_MOST_TEXT = 1 << 20
_MOST_DOTS = 1000
_UNREAD = re.compile(r'"[^"\n]*"|#[^\n]*')
_TOP = ("link", "transfer", "card", "node", "link_between", "link_matrix", "gpu")
_NODE = ("name", "link", "memory", "card")
_MATRIX = ("devices", "bandwidth", "latency")
_ABSENT = ("-", NO_LINK)
_CARD = ("gpu", "count", "memory", "price", "slices")
_PAIR = ("devices", "bandwidth", "latency")
_GPU = ("like", "sms", "memory", "memory_bandwidth", "price", "clock_mhz", "fp16_tflops")


def parse_machine(text: str, name: str = "<machine>") -> Machine:
    """The machine that a TOML text describes."""
    _check_size(text, name)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise _bad(f"`{name}` is not TOML: {problem}") from None
    except RecursionError:
        raise _bad(f"`{name}` is nested too deeply") from None
    if is_deep(data):
        raise _bad(f"`{name}` is nested too deeply")
    _check_keys(data, _TOP, "the file")
    own = {k: _own_gpu(k, _table(v, f"gpu.{k}")) for k, v in _table_of(data, "gpu").items()}
    rows, nodes = _rows(data, "card"), _rows(data, "node")
    if rows and nodes:
        raise _bad("either all cards are in a `[[node]]`, or none is")
    if not rows and not nodes:
        raise _bad(f"`{name}` has no `[[card]]`")
    entries = tuple(entry for row in rows for entry in _entries(row, own))
    inside = _nodes(nodes)
    for node in nodes:
        cards = _rows(node, "card")
        entries += tuple(
            replace(entry, node=_text(node, "name"))
            for row in cards
            for entry in _entries(row, own)
        )
    link = _text(data, "link", DEFAULT_LINK)
    machine = build_machine(entries, link)
    if nodes:
        machine = replace(with_nodes(machine, link, inside), node_memory=_node_memory(nodes))
    if "transfer" in data:
        machine = replace(machine, transfer_ns=_quantity(data, "transfer", parse_time_ns))
    if "link_matrix" in data:
        machine = _with_matrix(machine, _table(data["link_matrix"], "link_matrix"))
    for row in _rows(data, "link_between"):
        machine = _with_pair(machine, row)
    return machine


def _check_size(text: str, name: str) -> None:
    """Refuse what no machine needs, and what takes the reader of TOML for ever: dotted keys."""
    if len(text) > _MOST_TEXT:
        raise _bad(f"`{name}` is too large: more than {_MOST_TEXT} letters")
    if any(line.count(".") > _MOST_DOTS for line in _UNREAD.sub("", text).split("\n")):
        raise _bad(f"`{name}` is nested too deeply")


def _nodes(rows: list[dict[str, object]]) -> dict[str, str]:
    """The link within each node, by the node's name."""
    link_of: dict[str, str] = {}
    for row in rows:
        _check_keys(row, _NODE, "`[[node]]`")
        name = _text(row, "name")
        if name in link_of or not name:
            raise _bad(f"every node has a name of its own: `{name}`")
        if not _rows(row, "card"):
            raise _bad(f"the node `{name}` has no `[[node.card]]`")
        link_of[name] = _text(row, "link", DEFAULT_LINK)
    return link_of


def _node_memory(rows: list[dict[str, object]]) -> tuple[tuple[str, int], ...]:
    """What transfers may take of the memory of hosts, where that is said."""
    return tuple(
        (_text(row, "name"), _quantity(row, "memory", parse_bytes))
        for row in rows
        if "memory" in row
    )


def _with_matrix(machine: Machine, table: dict[str, object]) -> Machine:
    """A link of its own for each pair of the matrix, or none."""
    _check_keys(table, _MATRIX, "`[link_matrix]`")
    names, rows = table.get("devices"), table.get("bandwidth")
    ids = {device.name: device.id for device in machine.devices}
    if not isinstance(names, list) or not all(isinstance(n, str) and n in ids for n in names):
        raise _bad(f"`devices` must be a list of {', '.join(f'`{name}`' for name in ids)}")
    if len(set(names)) != len(names):
        raise _bad("`devices` of `[link_matrix]` are named once each")
    width = len(names)
    if (
        not isinstance(rows, list)
        or [isinstance(r, list) and len(r) for r in rows] != [width] * width
    ):
        raise _bad("`bandwidth` must have a row for each of the devices, and a column for each")
    latency = _quantity(table, "latency", parse_time_ns) if "latency" in table else None
    for a, row in zip(names, rows, strict=True):
        for b, cell in zip(names, row, strict=True):
            if a != b:
                speed = None if cell in _ABSENT else _cell(cell)
                machine = with_link(machine, ids[a], ids[b], speed, latency)
    return machine


def _cell(cell: object) -> float:
    value = parse_bandwidth(cell) if isinstance(cell, str) else None
    if value is None or not value > 0:
        raise _bad(f"a bandwidth must be a quantity above zero with its unit, or `-`: `{cell}`")
    return value


def _entries(row: dict[str, object], own: dict[str, Gpu]) -> Iterable[GpuEntry]:
    _check_keys(row, _CARD, "`[[card]]`")
    label = _text(row, "gpu")
    gpu = own[label] if label in own else find_gpu(label)
    if "memory" in row:
        memory = _quantity(row, "memory", parse_bytes)
        check_memory(gpu, memory)
        gpu = replace(gpu, memory_bytes=memory)
    if "price" in row:
        gpu = replace(gpu, usd_per_hour=_number(row, "price"), price_source="machine file")
    count = row.get("count", 1)
    if type(count) is not int or not 0 < count <= 256:
        raise _bad(f"`count` must be a number from 1 to 256: `{count}`")
    slices = row.get("slices")
    if slices is None:
        return [GpuEntry(count, gpu, None, label)]
    if not isinstance(slices, list) or any(type(s) is not int or s < 1 for s in slices):
        raise _bad(f"`slices` must be a list of numbers of SMs: `{slices}`")
    if not slices or sum(slices) > gpu.sms:
        raise _bad(f"slices of {sum(slices)} SMs do not fit the {gpu.sms} SMs of {gpu.name}")
    card = [GpuEntry(1, gpu, sms, label, opens_card=n == 0) for n, sms in enumerate(slices)]
    return card * count


def _own_gpu(name: str, row: dict[str, object]) -> Gpu:
    _check_keys(row, _GPU, f"`[gpu.{name}]`")
    base = find_gpu(_text(row, "like"))
    gpu = replace(base, key=name, name=name, like=base.key)
    if "sms" in row:
        share = _number(row, "sms") / gpu.sms
        rates = tuple(replace(rate, flops=rate.flops * share) for rate in gpu.rates)
        gpu = replace(gpu, sms=round(_number(row, "sms")), rates=rates)
    if "fp16_tflops" in row:
        gpu = _with_tensor_rate(gpu, _number(row, "fp16_tflops") * 1e12)
    if "clock_mhz" in row:
        gpu = replace(gpu, clock_mhz=_number(row, "clock_mhz"))
    if "memory" in row:
        gpu = replace(gpu, memory_bytes=_quantity(row, "memory", parse_bytes))
    if "memory_bandwidth" in row:
        bandwidth = _quantity(row, "memory_bandwidth", parse_bandwidth)
        gpu = replace(gpu, memory_bandwidth=bandwidth)
    if "price" in row:
        gpu = replace(gpu, usd_per_hour=_number(row, "price"), price_source="machine file")
    return gpu


def _with_tensor_rate(gpu: Gpu, flops: float) -> Gpu:
    """The GPU with another fp16 rate, and other types of its tensor cores in proportion."""
    known = gpu.flops("fp16")
    if not known:
        raise _bad(f"{gpu.name} has no fp16 rate: `like` another GPU")
    rates = tuple(
        rate if rate.unit == "fp32" else replace(rate, flops=rate.flops * flops / known)
        for rate in gpu.rates
    )
    return replace(gpu, rates=rates)


def _with_pair(machine: Machine, row: dict[str, object]) -> Machine:
    _check_keys(row, _PAIR, "`[[link_between]]`")
    names = row.get("devices")
    ids = {device.name: device.id for device in machine.devices}
    if not isinstance(names, list) or len(names) != 2 or not all(n in ids for n in names):
        raise _bad(f"`devices` must be two of {', '.join(f'`{name}`' for name in ids)}: `{names}`")
    a, b = (ids[name] for name in names)
    if a == b:
        raise _bad(f"a link joins two devices: `{names}`")
    bandwidth = _quantity(row, "bandwidth", parse_bandwidth)
    given = _quantity(row, "latency", parse_time_ns) if "latency" in row else None
    return with_link(with_link(machine, a, b, bandwidth, given), b, a, bandwidth, given)


# --- fields --------------------------------------------------------------------------------------


def _check_keys(row: dict[str, object], known: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"the keys are: {', '.join(known)}"
            raise _bad(f"{where} has an unknown key `{key}`", hint)


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _bad(f"`{where}` must be a table")
    return value


def _table_of(data: dict[str, object], key: str) -> dict[str, object]:
    return _table(data.get(key, {}), key)


def _rows(data: dict[str, object], key: str) -> list[dict[str, object]]:
    rows = data.get(key, [])
    if not isinstance(rows, list):
        raise _bad(f"write `[[{key}]]`, with two brackets")
    return [_table(row, key) for row in rows]


def _text(row: dict[str, object], key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str):
        raise _bad(f"`{key}` must be a text in quotes" + ("" if key in row else "; it is missing"))
    return value


def _number(row: dict[str, object], key: str) -> float:
    value = row[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1e-6 <= value <= 1e9:
        raise _bad(f"`{key}` must be a number above zero, and no absurd one: `{value}`")
    return float(value)


def _quantity(row: dict[str, object], key: str, parse: Callable[[str], T | None]) -> T:
    value = parse(_text(row, key))
    if value is None or not value > 0:  # type: ignore[operator]
        raise _bad(f"`{key}` must be a quantity above zero with its unit: `{row[key]}`")
    return value


def _bad(headline: str, hint: str | None = None) -> TesseraError:
    return TesseraError.of("TSR3005", headline, hint=hint)
