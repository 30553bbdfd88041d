"""Reads the arrival times of requests.

In: a path (`-` is standard input), or `poisson:20/s`. Out: `Arrivals` in order, with times relative
to the first. A file is recognised by its contents, never by its name, and may be compressed with
gzip. It is read line by line, and only as far as requests are needed: files of this kind have many
millions of lines. The first fault in a file is one error with its line.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import IO, cast

from tessera.diagnostics import Source, Span, TesseraError
from tessera.frontend.arrivals.formats import BadLine, LineReader, UnknownFormat, line_reader
from tessera.frontend.arrivals.poisson import draw_arrivals, is_process
from tessera.frontend.text.readfile import STDIN, STDIN_NAME, missing_file, unreadable_file
from tessera.ir.arrivals import Arrival, Arrivals

MOST_REQUESTS = 2_000_000
MOST_BYTES = 1 << 30
LONGEST_LINE = 1 << 20
_FEWER = "take the first requests, such as `--requests 100000`"
_GZIP = b"\x1f\x8b"
_BOM = "\ufeff"


def read_arrivals(given: str, *, most: int | None = None, seed: int = 0) -> Arrivals:
    """The requests of a file or a process, at most `most`; raises `TesseraError`."""
    if is_process(given):
        return draw_arrivals(given, most=most, seed=seed)
    with _opened(given) as stream:
        name = STDIN_NAME if given == STDIN else given
        try:
            return _read(stream, name, most)
        except OSError as problem:
            raise TesseraError(unreadable_file(f"`{name}`", problem)) from None


def _opened(given: str) -> AbstractContextManager[IO[bytes]]:
    if given == STDIN:
        if sys.stdin is None:
            raise TesseraError.of("TSR1900", "cannot read standard input: it is closed")
        return nullcontext(sys.stdin.buffer)
    if os.path.isdir(given):
        message = f"`{given}` is a folder, not a file of arrivals"
        raise TesseraError.of("TSR1900", message, hint="name one file")
    try:
        return open(given, "rb")
    except FileNotFoundError:
        raise TesseraError(missing_file(given)) from None
    except (OSError, ValueError) as problem:
        raise TesseraError(unreadable_file(f"`{given}`", problem)) from None


def _read(stream: IO[bytes], name: str, most: int | None) -> Arrivals:
    file = _File(stream, name)
    lines = file.lines()
    first = next(lines, None)
    if first is None:
        raise TesseraError.of(
            "TSR1903", f"`{name}` is empty", hint="look at the program that wrote it"
        )
    try:
        form, read, is_title = line_reader(first)
    except UnknownFormat as unknown:
        raise file.fault(unknown, "TSR1914") from None
    except BadLine as bad:
        raise file.fault(bad) from None
    requests = tuple(_requests(file, read, lines, None if is_title else first, most))
    if not requests:
        raise TesseraError.of("TSR1903", f"`{name}` has no requests, only the names of columns")
    return Arrivals(name=name, form=form, requests=requests)


def _requests(
    file: _File, read: LineReader, lines: Iterator[str], first: str | None, most: int | None
) -> Iterator[Arrival]:
    origin, before, count = None, 0, 0
    line = next(lines, None) if first is None else first
    while line is not None and (most is None or count < most):
        if count == MOST_REQUESTS:
            raise TesseraError.of(
                "TSR1904", f"`{file.name}` has more than {MOST_REQUESTS} requests", hint=_FEWER
            )
        try:
            at_ns, going_in, coming_out, pieces = read(line)
            if origin is None:
                origin = before = at_ns
            if at_ns < before:
                seconds = (before - at_ns) / 1e9
                raise BadLine(
                    f"this request comes {seconds:.9g} s before the one above it",
                    hint="sort the lines by their time",
                )
        except BadLine as bad:
            raise file.fault(bad) from None
        before = at_ns
        count += 1
        yield Arrival(at_ns - origin, going_in, coming_out, pieces)
        line = next(lines, None)


class _File:
    """A file line by line, with the number of the line that was read last."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.name = name
        self._stream = stream
        self._number = 0
        self._line = ""

    def lines(self) -> Iterator[str]:
        """The lines without their line ends. Empty lines at the end are ignored."""
        empty: int | None = None
        for data in self._data():
            self._line = self._decoded(data)
            if not self._line.strip():
                empty = empty or self._number
                continue
            if empty is not None:
                raise self.fault(BadLine(f"line {empty} is empty, and more lines follow"))
            yield self._line

    def _decoded(self, data: bytes) -> str:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            self._line = data.decode("utf-8", "replace").rstrip("\r\n")
            raise self.fault(BadLine("the line is not UTF-8 text")) from None
        return (text.removeprefix(_BOM) if self._number == 1 else text).rstrip("\r\n")

    def _data(self) -> Iterator[bytes]:
        """Lines as bytes, decompressed."""
        left = MOST_BYTES
        data = self._stream.readline(LONGEST_LINE + 1)
        readline = self._stream.readline
        if data.startswith(_GZIP):
            packed = cast("IO[bytes]", _Joined(data, self._stream))
            readline = gzip.GzipFile(fileobj=packed, mode="rb").readline
            data = self._unpacked(readline)
        while data:
            self._number += 1
            left -= len(data)
            if len(data) > LONGEST_LINE:
                self._line = ""
                raise self.fault(BadLine(f"the line is longer than {LONGEST_LINE} bytes"))
            if left < 0:
                message = f"`{self.name}` is too large: more than {MOST_BYTES} bytes"
                raise TesseraError.of("TSR1904", message, hint=_FEWER)
            yield data
            data = self._unpacked(readline)

    def _unpacked(self, readline: Callable[[int], bytes]) -> bytes:
        """The next line; a line that is too long is cut."""
        try:
            return readline(LONGEST_LINE + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
            self._number += 1
            self._line = ""
            reason = str(problem).rstrip(". ")
            text = f"the compressed data is damaged: {reason[:1].lower()}{reason[1:]}"
            raise self.fault(BadLine(text)) from None

    def fault(self, bad: BadLine, code: str = "TSR1914") -> TesseraError:
        """An error at the line that was read last."""
        number = max(self._number, 1)
        source = Source(self.name, f"{self._line}\n", first_line=number)
        start = max(self._line.find(bad.cell), 0)
        size = len(bad.cell) if bad.cell in self._line else 0
        span = Span(source, start, start + max(size or len(self._line), 1))
        message = f"`{self.name}`, line {number}: {bad.message}"
        return TesseraError.of(code, message, span, hint=bad.hint)


class _Joined:
    """Bytes that were already read, followed by the rest of their stream."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int) -> bytes:
        """At most `size` bytes."""
        if not self._first:
            return self._rest.read(size)
        part, self._first = self._first[:size], self._first[size:]
        return part
