"""Write a result to a file, or several to a folder: all of it or nothing.

The bytes go to a temporary file in the target's folder, which then takes the target's name in
one step. A reader never sees half a file, and an interrupted run leaves the old one alone.

An existing file is replaced only if it is a file of the same kind that this program wrote, or an
empty file (as `mktemp` makes), and never if it is an input of the command. Most kinds are
recognised by how they begin. Kinds that other programs write too have a mark in the syntax of their
format: PTX a comment at its very end, arrays the comment of a zip file or metadata. Devices and
pipes are written directly, and so are the descriptors behind `/dev/stdout` and `/dev/fd`: a file
that a shell has opened there must not be renamed away under it.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import IO, cast

from tessera.diagnostics import TesseraError

_END_BYTES = 4096  # bytes at the beginning and the end of a file that show its kind
_DESCRIPTORS = re.compile(r"/(?:proc/(?:self|thread-self|[0-9]+)|dev)/fd")
_MOST_LINKS = 40
_BOM = b"\xef\xbb\xbf"


class Kind(Enum):
    """The kinds of files that Tessera writes, each with its name for people."""

    PLAN = "a plan"
    GRAPH = "a kernel graph"
    PROFILE = "a profile"
    SELFTEST = "a self-test"
    REPORT = "a report"
    PTX = "PTX of `--emit ptx`"
    DOT = "a graph for Graphviz"
    PAGE = "a report page"
    MODEL = "an integer program"
    PROGRAMS = "launch programs"
    TIMELINE = "a timeline"
    RESULTS = "results of a run"
    TRACE = "a captured trace"
    CONTENTS = "contents of a captured trace"
    ARRIVALS = "arrivals"
    LINKS = "a matrix of links"
    CLUSTER = "a cluster with its token"


# Beginnings of files that identify their kind.
_BEGINNINGS = {
    Kind.PLAN: rb"tessera-plan \d",
    Kind.GRAPH: rb"tessera-graph \d",
    Kind.PROFILE: rb'\s*\{\s*"schema":\s*"tessera-profile/',
    Kind.SELFTEST: rb'\s*\{\s*"schema":\s*"tessera-selftest/',
    Kind.REPORT: rb'\s*\{\s*"schema":\s*"tessera[-.]analyze/|trace [^\n]*\n  buffers  |'
    rb"[^\n]*: PTX \d+\.\d+, target |#\d+ [^\n]* -> #\d+ ",
    Kind.DOT: rb"digraph kernels \{\n  rankdir=(?:LR|TB);\n  node \[shape=box, fontname=",
    Kind.PROGRAMS: rb"// replica 0: [0-9.]+% of requests, \d+ slots",
    Kind.PAGE: rb'<!doctype html>\n[^\n]*<meta name="generator" content="MARK">',
    Kind.MODEL: rb"\\ MARK\n",
    Kind.ARRIVALS: rb'\{"timestamp": [0-9.]+, "input_length": \d+, "output_length": \d+, '
    rb'"hash_ids": \[\]\}\n',
    Kind.CLUSTER: rb'\s*\{\s*"schema":\s*"tessera-cluster/',
    Kind.LINKS: rb"\[link_matrix\]\ndevices = \[",
    Kind.TIMELINE: rb'\{"displayTimeUnit":"ms","otherData":\{"producer":"MARK"\}',
}
_ARRAYS = (Kind.RESULTS, Kind.CONTENTS)
# Beginnings of comments in formats that need a mark.
_COMMENTS = {Kind.PTX: "// ", Kind.TRACE: "// "}


def mark(kind: Kind) -> str:
    """The mark in a file of a kind, which shows that Tessera wrote it."""
    return f"written by tessc: {kind.name.lower()}"


def write_file(path: str, data: bytes, kind: Kind) -> None:
    """Write `data` to `path`; raises `TesseraError` if that is not allowed or not possible."""

    def write(stream: IO[bytes]) -> None:
        stream.write(data)
        if kind in _COMMENTS and is_regular(path):
            stream.write(f"{_COMMENTS[kind]}{mark(kind)}\n".encode())

    write_stream(path, write, kind)


def write_stream(path: str, write: Callable[[IO[bytes]], None], kind: Kind) -> None:
    """Write the output of `write`, which begins like its kind or has its mark."""
    try:
        check_output(path, kind)
        if (descriptor := _descriptor(path)) is not None:
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                write(cast("IO[bytes]", _ForwardStream(stream)))
        elif _is_special(path):
            with open(path, "wb") as stream:
                write(cast("IO[bytes]", _ForwardStream(stream)))
        else:
            secret = kind is Kind.CLUSTER
            _replace(Path(os.path.realpath(path)), write, 0o600 if secret else None)
    except (OSError, ValueError) as problem:
        raise _cannot(path, _reason(problem)) from None


def check_folder(folder: str) -> None:
    """Refuse, before any work, a folder that cannot be made or written to."""
    try:
        place = Path(os.path.realpath(folder))
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        if not folder or not place.is_dir():
            raise _cannot(folder, f"`{place}` is no folder" if folder else "it has no name")
        if not os.access(place, os.W_OK | os.X_OK):
            raise _cannot(folder, f"`{place}` cannot be written to")
    except (OSError, ValueError) as problem:
        raise _cannot(folder, _reason(problem)) from None


def write_folder(folder: str, files: Mapping[str, bytes], words: bytes) -> None:
    """Write files with `words` in their first line; existing files without it are not replaced."""
    for path in (Path(folder, name) for name in files):
        if os.path.lexists(path) and not _has_words(path, words):
            raise _cannot(
                str(path),
                "there is one that this command has not written",
                "choose another folder, or take that file away",
            )
    made: list[tuple[str, Path]] = []
    place = folder
    try:
        for name, data in files.items():
            place = os.path.join(folder, name)
            target = Path(os.path.realpath(place))
            target.parent.mkdir(parents=True, exist_ok=True)
            made.append((_write_beside(target, partial(_write_all, data)), target))
        for temporary, target in made:
            os.replace(temporary, target)
    except (OSError, ValueError) as problem:
        raise _cannot(place, _reason(problem)) from None
    finally:
        for temporary, _ in made:
            Path(temporary).unlink(missing_ok=True)


# --- what may be written -------------------------------------------------------------------------


def check_output(path: str, kind: Kind, inputs: Iterable[str | None] = ()) -> None:
    """Refuse, before any work, a path that cannot be written or holds a file that is not ours."""
    try:
        _check_output(path, kind, inputs)
    except (OSError, ValueError) as problem:
        raise _cannot(path, _reason(problem)) from None


def _check_output(path: str, kind: Kind, inputs: Iterable[str | None]) -> None:
    if not path or os.path.isdir(path):
        raise _cannot(path, "it is a folder" if path else "it has no name")
    if _descriptor(path) is not None:
        return
    there = _status(path)
    if there is not None:
        for given in inputs:
            if given and _is_at(given, there):
                raise _cannot(path, "it is an input of this command", "choose another name")
        if not stat.S_ISREG(there.st_mode):
            return
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise _cannot(path, f"`{os.path.dirname(path) or folder}` is no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _cannot(path, f"`{os.path.dirname(path) or folder}` cannot be written to")
    if there is None or not there.st_size:
        return
    if not os.access(path, os.W_OK):
        raise _cannot(path, "the file there is read-only")
    if not _is_ours(path, kind):
        raise _cannot(
            path,
            f"the file there is not {kind.value} that tessc has written",
            "choose another name, or take that file away first",
        )


def is_same_place(path: str, other: str) -> bool:
    """Whether two paths name one file, existing or not; upper and lower case are equal.

    Only some file systems are case-sensitive, so two outputs must not differ in case alone.
    """
    here, there = _status(path), _status(other)
    if here is not None and there is not None:
        return stat.S_ISREG(here.st_mode) and os.path.samestat(here, there)
    return os.path.realpath(path).casefold() == os.path.realpath(other).casefold()


def check_apart(first: str, second: str, why: str, hint: str | None = None) -> None:
    """Refuse two outputs of one command with the same path."""
    if is_same_place(first, second):
        raise _cannot(first, why, hint)


def is_regular(path: str) -> bool:
    """Whether a path is that of a plain file, or does not exist yet."""
    try:
        status = _status(path)
    except (OSError, ValueError):
        return False
    return _descriptor(path) is None and (status is None or stat.S_ISREG(status.st_mode))


def _is_ours(path: str, kind: Kind) -> bool:
    """Whether a file shows that this program wrote it, as that kind."""
    with open(path, "rb") as stream:
        head = stream.read(_END_BYTES)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _END_BYTES))
        tail = stream.read(_END_BYTES)
    words = mark(kind).encode()
    if kind in _COMMENTS:
        return tail.endswith(f"\n{_COMMENTS[kind]}{mark(kind)}\n".encode())
    if kind in _ARRAYS:
        packed = head.startswith(b"PK") and tail.endswith(words)
        return packed or head[8:].startswith(b'{"__metadata__":{"producer":"%s"}' % words)
    beginning = _BEGINNINGS[kind].replace(b"MARK", re.escape(words))
    return bool(re.match(beginning, head.removeprefix(_BOM)))


def _has_words(path: Path, words: bytes) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return words in stream.readline(_END_BYTES)
    except OSError:
        return False


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_at(path: str, there: os.stat_result) -> bool:
    """Whether a path leads to the file `there`; False if it leads nowhere."""
    try:
        return os.path.samestat(os.stat(path), there)
    except (OSError, ValueError):
        return False


def _is_special(path: str) -> bool:
    status = _status(path)
    return status is not None and not stat.S_ISREG(status.st_mode)


def _descriptor(path: str) -> int | None:
    """The number of the open file that `/dev/stdout` or `/dev/fd/3` stands for, if it is one."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(os.path.abspath(path))
        if _DESCRIPTORS.fullmatch(folder) and name.isdecimal():
            own = folder in ("/dev/fd", "/proc/self/fd", f"/proc/{os.getpid()}/fd")
            return int(name) if own else None
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def _reason(problem: OSError | ValueError) -> str:
    return str(getattr(problem, "strerror", None) or problem).lower()


def _cannot(path: str, why: str, hint: str | None = None) -> TesseraError:
    return TesseraError.of(
        "TSR1911",
        f"cannot write `{path}`: {why}",
        notes=("nothing was changed there",),
        hint=hint,
    )


# --- how it is written ---------------------------------------------------------------------------


class _ForwardStream:
    """A stream without seeks: devices accept a seek but do not perform it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.write = stream.write
        self.flush = stream.flush


def _write_all(data: bytes, stream: IO[bytes]) -> None:
    stream.write(data)


def _replace(target: Path, write: Callable[[IO[bytes]], None], mode: int | None = None) -> None:
    temporary = _write_beside(target, write, mode)
    try:
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_beside(target: Path, write: Callable[[IO[bytes]], None], mode: int | None = None) -> str:
    """The path of a temporary file in the target's folder that can take its place."""
    # The target's name may be as long as the file system allows, so it is shortened here.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:32]}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
        os.chmod(temporary, _mode(target) if mode is None else mode)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _mode(target: Path) -> int:
    """The permissions of the existing file, or those that a new file would get."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
