"""Runs oracle kernels on the host: every access logged, nothing of Tessera involved.

In: sources. Out: per source its runs, or why it is no case (`Refused`): it leaves its buffers, it
races, it depends on where buffers lie or on the order of threads, it does not end. Every kernel
runs twice with each contents, with buffers elsewhere and threads the other way round the second
time; both must agree.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.oracle.subset import (
    At,
    Buffer,
    Bytes,
    Run,
    Source,
    Touched,
    Word,
    contents,
    packed,
    to_ranges,
)

HERE = Path(__file__).resolve().parent / "host"
# As the GPU does: no contraction of floats, signed `char`, integers that wrap.
FLAGS = ("-fPIC", "-fsigned-char", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing", "-w")
STATUS = ("", "leaves its buffers", "does not end", "races", "faults", "diverges at a barrier")
GAP = 512
# Whose needed bytes are searched; the search runs the kernel for every byte that it reads.
SEARCHED = ("first", "second")


class Refused(Exception):
    """A source that is no case."""


class _Job(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("barriers", ctypes.c_uint32),
        ("reversed", ctypes.c_uint32),
        ("arena", ctypes.c_void_p),
        ("arena_bytes", ctypes.c_uint64),
        ("inside", ctypes.c_void_p),
        ("marks", ctypes.c_void_p),
        ("where", ctypes.c_uint64),
    )


def build(sources: Sequence[Source], folder: Path, compiler: str = "g++") -> ctypes.CDLL:
    """All sources in one library."""
    parts = ["#define ORACLE_HOST 1", f'#include "{HERE / "subset.h"}"']
    for number, source in enumerate(sources):
        values = ", ".join(f"*({kind} *)args[{i}]" for i, (kind, _) in enumerate(source.params))
        parts.append(
            f"namespace case_{number} {{\n{source.code}"
            f'extern "C" __attribute__((no_sanitize_thread)) void call_{number}(void **args) '
            f"{{ k({values}); }}\n}}"
        )
    text, library = folder / "cases.cpp", folder / "cases.so"
    text.write_text("\n".join(parts))
    objects = [str(folder / "cases.o"), str(folder / "runtime.o")]
    kernels = ["-O0", "-fsanitize=thread", "-c", str(text), "-o", objects[0]]
    runtime = ["-O2", "-c", str(HERE / "runtime.cpp"), "-o", objects[1]]
    for flags in (kernels, runtime, ["-shared", *objects, "-o", str(library)]):
        done = subprocess.run([compiler, *FLAGS, *flags], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{compiler}: {done.stderr[:2000]}")
    return ctypes.CDLL(str(library))


class Layout:
    """Where the buffers of a case lie in one arena."""

    def __init__(self, buffers: Sequence[Buffer], other: bool) -> None:
        self.buffers = buffers
        numbers = list(range(len(buffers)))
        at, self.starts = (5 if other else 2) * 256, [0] * len(buffers)
        for number in reversed(numbers) if other else numbers:
            self.starts[number] = at
            at += -(-buffers[number].bytes // 256) * 256 + (GAP + 256 if other else GAP)
        self.size = at + 4096
        room = np.zeros(self.size + 4096, np.uint8)
        skip = -room.ctypes.data % 4096
        self.arena = room[skip : skip + self.size]
        self.marks = np.zeros(self.size, np.uint8)
        self.inside = np.zeros(self.size, np.uint8)
        for start, buffer in zip(self.starts, buffers, strict=True):
            self.inside[start : start + buffer.bytes] = 1

    def address(self, at: At) -> int:
        """The number that a kernel is given for an address."""
        return int(self.arena.ctypes.data) + self.starts[at.buffer] + at.offset

    def find(self, address: int) -> At | None:
        """The buffer that an address is in (one past its end counts)."""
        offset = address - int(self.arena.ctypes.data)
        for number, (start, buffer) in enumerate(zip(self.starts, self.buffers, strict=True)):
            if start <= offset <= start + buffer.bytes:
                return At(number, offset - start)
        return None

    def parts(self, array: Bytes) -> list[Bytes]:
        """An array over the arena, cut into buffers."""
        return [
            array[s : s + b.bytes].copy() for s, b in zip(self.starts, self.buffers, strict=True)
        ]

    def fill(self, source: Source, data: str) -> None:
        """The contents that a run finds."""
        self.arena[:] = 0xC3
        given = contents(source.name, self.buffers, data)
        for start, content in zip(self.starts, given, strict=True):
            self.arena[start : start + content.size] = content
        for buffer, word in source.tables:
            at = self.starts[buffer] + word.offset
            self.arena[at : at + 8] = _word(self.address(word.target))


def _word(address: int) -> Bytes:
    return np.frombuffer(struct.pack("<Q", address), np.uint8)


class Host:
    """The library of a list of sources."""

    def __init__(self, sources: Sequence[Source], folder: Path) -> None:
        self.sources = sources
        self.library = build(sources, folder)
        self.library.oracle_needed.restype = None

    def runs(self, number: int) -> tuple[Run, ...]:
        """What a source does with each contents; `Refused` if it is no case."""
        source = self.sources[number]
        return tuple(self._run(number, source, data) for data in source.data)

    def _job(self, number: int, layout: Layout, *, other: bool) -> tuple[_Job, list[object]]:
        source = self.sources[number]
        given = [packed(argument, layout.address) for argument in source.args]
        raw = [ctypes.create_string_buffer(value, len(value)) for value in given]
        args = (ctypes.c_void_p * max(len(raw), 1))(*[ctypes.addressof(r) for r in raw])
        entry = ctypes.cast(getattr(self.library, f"call_{number}"), ctypes.c_void_p).value
        barriers = int("SYNC(" in source.code or "SHFL" in source.code)
        job = _Job(
            entry,
            ctypes.addressof(args),
            (ctypes.c_uint32 * 3)(*source.grid),
            (ctypes.c_uint32 * 3)(*source.block),
            barriers,
            int(other),
            layout.arena.ctypes.data,
            layout.size,
            layout.inside.ctypes.data,
            layout.marks.ctypes.data,
            0,
        )
        return job, [raw, args]

    def _run(self, number: int, source: Source, data: str) -> Run:
        layouts = [Layout(source.buffers, other) for other in (False, True)]
        jobs = []
        for other, layout in enumerate(layouts):
            layout.fill(source, data)
            job, kept = self._job(number, layout, other=bool(other))
            jobs.append((job, kept))
            before = layout.arena.copy()
            status = self.library.oracle_run(ctypes.byref(job))
            if status:
                raise Refused(f"{STATUS[status]} ({data}, byte {job.where})")
            if not other:
                first, marks, after = before, layout.marks.copy(), layout.arena.copy()
        if any(
            not np.array_equal(x, y)
            for x, y in zip(
                layouts[0].parts(marks), layouts[1].parts(layouts[1].marks), strict=True
            )
        ):
            raise Refused(f"touches other bytes when buffers lie elsewhere ({data})")
        words = _words(layouts, after)
        needed = np.zeros(layouts[0].size, np.uint8)
        if data in SEARCHED:
            job = jobs[0][0]
            self.library.oracle_needed(
                ctypes.byref(job),
                *(ctypes.c_void_p(a.ctypes.data) for a in (first, after, marks, needed)),
            )
        return _record(data, layouts[0], source, (first, after, marks, needed), words)


def _words(layouts: Sequence[Layout], after: Bytes) -> tuple[tuple[int, Word], ...]:
    """The words that hold addresses afterwards; anything else must not depend on the layout."""
    found = []
    pairs = zip(layouts[0].parts(after), layouts[1].parts(layouts[1].arena), strict=True)
    for number, (one, two) in enumerate(pairs):
        for at in sorted({int(i) // 8 * 8 for i in np.flatnonzero(one != two)}):
            values = [int(v[at : at + 8].view(np.uint64)[0]) for v in (one, two)]
            places = [x.find(v) for x, v in zip(layouts, values, strict=True)]
            if places[0] is None or places[0] != places[1]:
                raise Refused("leaves something that depends on where buffers lie")
            found.append((number, Word(at, places[0])))
    return tuple(found)


def _record(
    data: str,
    layout: Layout,
    source: Source,
    arrays: Sequence[Bytes],
    words: tuple[tuple[int, Word], ...],
) -> Run:
    touched, left = [], []
    held = {(buffer, word.offset + i) for buffer, word in words for i in range(8)}
    for number, (before, after, marks, needed) in enumerate(
        zip(*(layout.parts(a) for a in arrays), strict=True)
    ):
        if marks.any():
            touched.append(
                Touched(
                    number,
                    to_ranges((marks & 1) != 0),
                    to_ranges((marks & 2) != 0),
                    to_ranges(needed != 0),
                )
            )
        if ((before != after) & (marks & 2 == 0)).any():
            raise AssertionError(f"{source.name}: the log lacks a write")
        for buffer, at in held:
            if buffer == number:
                after[at] = 0
        left += [(number, s, after[s:e].tobytes()) for s, e in to_ranges((marks & 2) != 0)]
    return Run(data, tuple(touched), tuple(left), words)
