"""Numbers with units as users type them: `100Gb/s`, `40GB`, `5us`.

In: text. Out: bytes, bytes per second or nanoseconds. A small `b` is bits, a large `B` bytes;
`GB` is 10^9 and `GiB` 2^30. None means "not a quantity of that kind".
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,3}))?\s*(.*?)\s*\Z")
_PREFIXES = {
    "": 1,
    "K": 10**3,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_MOST_BANDWIDTH = 1e18
_MOST_BYTES = 1e18
_TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def _split(text: str) -> tuple[float, str] | None:
    match = _NUMBER.match(text)
    if match is None:
        return None
    value = float(f"{match[1]}e{match[2] or 0}")
    return (value, match[3]) if value != float("inf") else None


def parse_bytes(text: str) -> int | None:
    """`40GB`, `46068MiB` or a plain number of bytes."""
    parts = _split(text)
    if parts is None:
        return None
    value, unit = parts
    prefix = unit.removesuffix("B")
    if prefix not in _PREFIXES or (unit and not unit.endswith("B")):
        return None
    size = value * _PREFIXES[prefix]
    return round(size) if size < _MOST_BYTES else None


def parse_bandwidth(text: str) -> float | None:
    """`100Gb/s`, `100Gbps`, `25GB/s`; in bytes per second. None if it is less than 1 byte/s."""
    parts = _split(text)
    if parts is None:
        return None
    value, unit = parts
    for ending in ("/s", "ps"):
        if unit.endswith(ending):
            unit = unit.removesuffix(ending)
            break
    else:
        return None
    if unit.removesuffix("it").endswith("b"):
        prefix, bits = unit.removesuffix("it").removesuffix("b"), 8
    else:
        prefix, bits = unit.removesuffix("B"), 1
        if not unit.endswith("B"):
            return None
    scale = _PREFIXES.get(prefix)
    if scale is None or not value * scale < _MOST_BANDWIDTH:
        return None
    return value * scale / bits if value * scale / bits >= 1 else 0.0


def parse_time_ns(text: str) -> float | None:
    """`5us`, `300ns`."""
    parts = _split(text)
    if parts is None or parts[1] not in _TIMES:
        return None
    return parts[0] * _TIMES[parts[1]]


def format_bytes(count: float) -> str:
    """Bytes in the unit a person would choose: `80.0 GB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} bytes"


def format_time(ns: float) -> str:
    """A time in the unit a person would choose: `55.9 ms`."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= scale * 0.9995:  # 999.97 us would be shown as 1000.0 us
            value = ns / scale
            return f"{value:.1f} {unit}" if abs(value) >= 9.995 else f"{value:.2f} {unit}"
    return f"{ns:.0f} ns"
