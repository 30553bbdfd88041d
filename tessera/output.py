"""Write a result to a file, or several to a folder: the whole of it, or nothing.

The bytes go to a temporary file in the target's folder, which then takes the target's name in
one step. A reader never sees half a file, and an interrupted run leaves the old one alone.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tessera.diagnostics import TesseraError, error


def write_file(path: str, data: bytes) -> None:
    """Write `data` under `path`; raises `TesseraError` where the system refuses."""
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            # A device or a pipe cannot be renamed over; it takes the bytes as they come.
            target.write_bytes(data)
        else:
            _replace(target, data)
    except (OSError, ValueError) as problem:
        raise _cannot(path, _reason(problem)) from None


def write_folder(folder: str, files: Mapping[str, bytes], mark: bytes) -> None:
    """Write files, each with `mark` in its first line; none takes the place of one without it."""
    for path in (Path(folder, name) for name in files):
        if os.path.lexists(path) and not _has_mark(path, mark):
            raise _cannot(str(path), "there is one that this command has not written",
                          "choose another folder, or take that file away")  # fmt: skip
    made: list[tuple[str, Path]] = []
    place = folder
    try:
        for name, data in files.items():
            place = os.path.join(folder, name)
            target = Path(os.path.realpath(place))
            target.parent.mkdir(parents=True, exist_ok=True)
            made.append((_write_beside(target, data), target))
        for temporary, target in made:
            os.replace(temporary, target)
    except (OSError, ValueError) as problem:
        raise _cannot(place, _reason(problem)) from None
    finally:
        for temporary, _ in made:
            Path(temporary).unlink(missing_ok=True)


def _has_mark(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return mark in stream.readline(4096)
    except OSError:
        return False


def check_output(path: str, inputs: Iterable[str | None]) -> None:
    """Refuse a place that cannot be written, or that one of the inputs is in, before any work."""
    folder = os.path.dirname(path) or "."
    if not path or os.path.isdir(path):
        raise _cannot(path, "it is a folder" if path else "it has no name")
    if not os.path.isdir(folder):
        raise _cannot(path, f"`{folder}` is no folder")
    if not os.access(folder, os.W_OK):
        raise _cannot(path, f"`{folder}` cannot be written to")
    for given in inputs:
        both = given is not None and os.path.exists(given) and os.path.exists(path)
        if given is not None and both and os.path.samefile(given, path):
            raise _cannot(path, "it is an input of this command")


def _reason(problem: OSError | ValueError) -> str:
    return str(getattr(problem, "strerror", None) or problem).lower()


def _cannot(path: str, why: str, hint: str | None = None) -> TesseraError:
    return TesseraError(
        error("TSR1911", f"cannot write `{path}`: {why}", notes=("no file was changed",), hint=hint)
    )


def _replace(target: Path, data: bytes) -> None:
    temporary = _write_beside(target, data)
    try:
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_beside(target: Path, data: bytes) -> str:
    """The path of a temporary file in the target's folder that can take its place."""
    # A name may be as long as a folder allows, and this one is longer.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:32]}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, _mode(target))
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _mode(target: Path) -> int:
    """The permissions that the file has, or that a new one would get."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
