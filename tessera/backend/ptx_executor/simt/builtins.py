"""Call frames, traps, and the functions of the driver: printf, assert, malloc, free.

Text goes to the output of the launch in lane order. `malloc` allocates device memory, which stays
allocated until the kernel frees it or the device is closed.
"""

from __future__ import annotations

import re
import struct

import numpy as np

from tessera.backend.ptx_executor.memory.access import load, store
from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.memory.spaces import gather_generic, gather_local, scatter_local
from tessera.backend.ptx_executor.simt.compiled import FUNCTION_BASE, FUNCTION_STEP

# Sizes of the parameters and of the result, in bytes.
BUILTINS: dict[str, tuple[tuple[int, ...], int]] = {
    "vprintf": ((8, 8), 4),
    "__assertfail": ((8, 8, 4, 8, 8), 4),
    "malloc": ((8,), 8),
    "free": ((8,), 4),
}

_CONVERSION = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|j|t)?([a-zA-Z%])")
_LONGEST = 1 << 16


def _read_string(cx: LaneSet, site: int, address: int, lane: int) -> bytes:
    """A string that ends with a zero byte, read through the lane's generic address."""
    text = bytearray()
    who = np.array([lane])
    while len(text) < _LONGEST:
        at = np.array([address + len(text)], dtype=np.uint64)
        byte = int(gather_generic(cx, site, at, 1, who)[0])
        if byte == 0:
            break
        text.append(byte)
    return bytes(text)


def builtin_vprintf(cx: LaneSet, site: int, form: Array, values: Array) -> Array:
    """Format one text per lane; return the number of arguments, as CUDA does."""
    counts = np.zeros(cx.shape, dtype=np.uint32)
    known: dict[int, bytes] = {}
    for place, (at, arguments) in cx.each(None, form, values):
        if at not in known:
            known[at] = _read_string(cx, site, at, place)
        text, count = _format(cx, site, known[at], arguments, place)
        cx.chunk.launch.output.append(text)
        counts.reshape(-1)[place] = count
    return counts


def _format(cx: LaneSet, site: int, form: bytes, address: int, lane: int) -> tuple[str, int]:
    """The formatted text, and the number of arguments taken from the buffer at `address`."""
    offset = 0
    count = 0
    who = np.array([lane])

    def take(width: int) -> int:
        nonlocal offset, count
        offset = -(-offset // width) * width
        at = np.array([address + offset], dtype=np.uint64)
        offset += width
        count += 1
        return int(gather_generic(cx, site, at, width, who)[0])

    def replace(match: re.Match[bytes]) -> bytes:
        flags, width, precision, length, letter = (g.decode() if g else "" for g in match.groups())
        if letter == "%":
            return b"%"
        if width == "*":
            width = str(_signed(take(4), 4))
        if precision == "*":
            precision = str(_signed(take(4), 4))
        dotted = f".{precision}" if precision else ""
        spec = f"%{flags}{width}{dotted}"
        if letter in "diuxXoc":
            size = 8 if length in ("l", "ll", "z", "j", "t") else 4
            # `char` and `short` are passed as `int`, and printed in their own width.
            kept = {"hh": 1, "h": 2}.get(length, size)
            bits = take(size) & ((1 << 8 * kept) - 1)
            if letter in "di":
                return (spec + "d").encode() % _signed(bits, kept)
            if letter == "c":
                return (spec + "c").encode() % (bits & 0xFF)
            return (spec + ("d" if letter == "u" else letter)).encode() % bits
        if letter in "eEfFgGaA":
            number = struct.unpack("<d", struct.pack("<Q", take(8)))[0]
            if letter in "aA":
                return float(number).hex().encode()
            return bytes((spec + letter).encode() % number)
        if letter == "p":
            return b"0x%x" % take(8)
        if letter == "s":
            pointer = take(8)
            text = b"(null)" if pointer == 0 else _read_string(cx, site, pointer, lane)
            return (spec + "s").encode() % text
        return match.group(0)

    return _CONVERSION.sub(replace, form).decode("utf-8", "replace"), count


def _signed(bits: int, width: int) -> int:
    return bits - (1 << 8 * width) if bits >> (8 * width - 1) else bits


def builtin___assertfail(
    cx: LaneSet, site: int, message: Array, file: Array, line: Array, function: Array, size: Array
) -> Array:
    """Stop the launch with the text of the assertion."""
    lane = int(cx.chosen(cx.active)[0])

    def at(value: Array) -> int:
        return int(cx.flat(value)[lane])

    texts = [
        _read_string(cx, site, at(v), lane).decode("utf-8", "replace") if at(v) else ""
        for v in (message, file, function)
    ]
    raise Fault(
        "TSR5012",
        f"assertion failed: {texts[0]}",
        site,
        lane,
        (f"{texts[1]}:{at(line)}: in `{texts[2]}`",),
    )


def builtin_malloc(cx: LaneSet, site: int, size: Array) -> Array:
    """Allocate device memory for each lane, in lane order."""
    addresses = np.zeros(cx.shape, dtype=np.uint64)
    for place, (count,) in cx.each(None, size):
        allocation = cx.chunk.launch.space.allocate(count, "malloc")
        addresses.reshape(-1)[place] = allocation.address
    return addresses


def builtin_free(cx: LaneSet, site: int, address: Array) -> Array:
    """Free device memory; null is allowed."""
    launch = cx.chunk.launch
    for _, (at,) in cx.each(None, address):
        if at == 0:
            continue
        allocation = launch.space.find(at)
        if allocation is None or allocation.address != at or allocation.name != "malloc":
            raise Fault("TSR5002", f"free of an address that malloc did not give: 0x{at:x}", site)
        launch.log.forget(allocation)
        launch.space.free(allocation)
    return np.zeros((1, 1), dtype=np.uint32)


def trap(cx: LaneSet, site: int) -> None:
    """The `trap` instruction."""
    raise Fault("TSR5012", "trap", site, int(cx.chosen(cx.active)[0]))


def check_table(cx: LaneSet, site: int, index: Array, count: int, guard: Array | None) -> None:
    """Refuse an index of a table branch outside its list."""
    on = cx.enabled(guard)
    bad = index >= count
    if on is not None:
        bad = bad & on
    if bad.any():
        lane = int(np.flatnonzero(np.broadcast_to(bad, cx.shape))[0])
        value = int(cx.flat(index)[lane])
        raise Fault("TSR5023", f"table branch with index {value}, but {count} targets", site, lane)


def sleep(cx: LaneSet, duration: Array, guard: Array | None) -> None:
    """Move the virtual clock forward."""
    on = cx.enabled(guard)
    if on is None or on.any():
        cx.chunk.slept_ns += int(duration.max())


def open_frame(cx: LaneSet, site: int, above: Array) -> None:
    """Reserve local memory for the frame of a called function."""
    cx.chunk.need_local(int(above.max()) + cx.chunk.launch.program.frame_limit, site)


def copy_local(cx: LaneSet, site: int, target: Array, source: Array, size: int) -> None:
    """Copy `size` bytes, in words as wide as the size allows (frames are 16-byte aligned)."""
    done = 0
    while done < size:
        width = next(
            w for w in (8, 4, 2, 1) if w <= size - done and _aligned(target, source, done, w)
        )
        step = target.dtype.type(done)
        word = load(cx, gather_local, site, source + step, width)
        store(cx, scatter_local, site, target + step, width, [word])
        done += width


def _aligned(target: Array, source: Array, done: int, width: int) -> bool:
    first, second = int(target.reshape(-1)[0]), int(source.reshape(-1)[0])
    return (first + done) % width == 0 and (second + done) % width == 0


def find_function(cx: LaneSet, site: int, address: Array) -> Array:
    """The entry blocks of functions called through their addresses."""
    entries: Array = cx.chunk.launch.program.function_entries
    number = (address - np.uint64(FUNCTION_BASE)).astype(np.int64) // FUNCTION_STEP
    bad = (number < 0) | (number >= len(entries)) | (address % np.uint64(FUNCTION_STEP) != 0)
    bad |= entries[np.clip(number, 0, len(entries) - 1)] < 0
    if cx.active is not None:
        bad = bad & cx.active
    if bad.any():
        lane = int(np.flatnonzero(np.broadcast_to(bad, cx.shape))[0])
        at = int(cx.flat(address)[lane])
        raise Fault("TSR5023", f"call of an address that is no function: 0x{at:x}", site, lane)
    return entries[np.clip(number, 0, len(entries) - 1)]
