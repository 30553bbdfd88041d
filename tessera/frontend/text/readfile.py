"""Read a PTX file or a trace as text, or say what the file is instead.

In: a path, or `-` for standard input. Out: a `Source` whose text gives the bytes back.
The text is decoded as UTF-8 with `surrogateescape`: compilers copy file names into comments and
strings byte for byte, so a stray Latin-1 byte is legal and has to survive printing. A UTF-8 byte
order mark and NULs at the very end are dropped; line ends are kept. Everything that is not text
is refused with an error that says what it is (`sniff`), before the rest of the file is read.
"""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import BinaryIO

from tessera.diagnostics import Diagnostic, Source, Span, TesseraError, error
from tessera.frontend.text.sniff import sniff_bytes, sniff_text

STDIN = "-"
STDIN_NAME = "<stdin>"
MAX_BYTES = 1 << 30

_HEAD_BYTES = 65536
_PIECE_BYTES = 16 << 20
_BOM = b"\xef\xbb\xbf"
# Tab, line feed, vertical tab, form feed, carriage return, and Ctrl-Z (which ptxas skips).
_TEXT_CONTROLS = frozenset(b"\t\n\x0b\x0c\r\x1a")
_CONTROL_BYTES = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS)


def read_source(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> Source:
    """The text of a file, or of standard input for `-`; raises `TesseraError` if it has no text."""
    name = os.fspath(path)
    if name == STDIN:
        return source_of_bytes(_read_stdin(limit), STDIN_NAME)
    if os.path.isdir(name):
        raise TesseraError.of(
            "TSR1900",
            f"`{name}` is a folder, not a file",
            hint="name one file; `-` reads standard input",
        )
    try:
        with open(name, "rb") as stream:
            return read_stream(stream, name, limit)
    except FileNotFoundError:
        raise TesseraError(missing_file(name)) from None
    except (OSError, ValueError) as problem:
        raise TesseraError(unreadable_file(f"`{name}`", problem)) from None


def read_stream(stream: BinaryIO, name: str, limit: int = MAX_BYTES) -> Source:
    """The text of an open file."""
    return source_of_bytes(_read_stream(stream, name, limit), name)


def source_of_bytes(data: bytes, name: str) -> Source:
    """The text in the bytes of a file; raises `TesseraError` if they are not PTX-like text."""
    if problem := sniff_bytes(data[:_HEAD_BYTES], name):
        raise TesseraError(problem)
    # NVRTC and the driver return PTX as a C string; its final NUL often ends up in files.
    data = data.removeprefix(_BOM)
    data = data.rstrip(b"\0") or data
    text = data.decode("utf-8", "surrogateescape")
    source = Source(name, text)
    if not text or text.isspace():
        raise TesseraError.of(
            "TSR1903", f"`{name}` is empty", hint="look at the program that wrote it"
        )
    if problem := _binary(data, source) or sniff_text(source):
        raise TesseraError(problem)
    return source


def source_of_text(text: str, name: str) -> Source:
    """The source of a text from a program, without the mark and the NULs that files may have."""
    text = text.removeprefix("\ufeff")
    return Source(name, text.rstrip("\0") or text)


def text_to_bytes(text: str) -> bytes:
    """The bytes that a text read by `read_source` came from."""
    return text.encode("utf-8", "surrogateescape")


def _read_stdin(limit: int) -> bytes:
    # `sys.stdin` is None if the process was started with the descriptor closed.
    if sys.stdin is None:
        raise TesseraError.of("TSR1900", "cannot read standard input: it is closed")
    try:
        return _read_stream(sys.stdin.buffer, STDIN_NAME, limit)
    except OSError as problem:
        raise TesseraError(unreadable_file("standard input", problem)) from None


def _read_up_to(stream: BinaryIO, most: int) -> bytes:
    """Read bytes in pieces: one large read would allocate the memory for all of them first."""
    pieces = []
    while most > 0 and (piece := stream.read(min(most, _PIECE_BYTES))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _read_stream(stream: BinaryIO, name: str, limit: int) -> bytes:
    """All bytes of a stream; stops at a signature in its head, and at the limit."""
    head = stream.read(_HEAD_BYTES)
    if problem := sniff_bytes(head, name):
        raise TesseraError(problem)
    if len(head) < _HEAD_BYTES and len(head) <= limit:
        return head + _read_up_to(stream, limit - len(head))
    data = head + _read_up_to(stream, max(limit + 1 - len(head), 0))
    if len(data) > limit:
        raise TesseraError.of(
            "TSR1904",
            f"`{name}` is too large: more than {limit} bytes",
            hint="give PTX; a module of that size can be split by function",
        )
    return data


def _binary(data: bytes, source: Source) -> Diagnostic | None:
    """An error if the bytes hold a NUL or too many control characters for a text."""
    head = data[:_HEAD_BYTES]
    controls = len(head) - len(head.translate(None, _CONTROL_BYTES))
    if controls * 20 > len(head):
        return error(
            "TSR1909",
            f"`{source.name}` holds binary data, not text",
            notes=(f"control characters in its first {len(head)} bytes: {controls}",),
        )
    at = source.text.find("\0")
    if at < 0:
        return None
    return error(
        "TSR1909",
        f"`{source.name}` has a NUL byte, so it is not text",
        Span(source, at, at + 1),
        "for the driver, the text would end here",
    )


def missing_file(name: str) -> Diagnostic:
    """An error for a missing file, with a hint at a file of nearly the same name."""
    path = Path(name)
    try:
        present = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        present = []
    near = difflib.get_close_matches(path.name, sorted(present), n=1, cutoff=0.7)
    hint = f"did you mean `{path.parent / near[0]}`?" if near else None
    return error("TSR1900", f"file not found: `{name}`", hint=hint)


def unreadable_file(name: str, problem: OSError | ValueError) -> Diagnostic:
    """An error for a file that exists but cannot be read."""
    reason = getattr(problem, "strerror", None) or str(problem)
    return error("TSR1900", f"cannot read {name}: {reason.lower()}")
