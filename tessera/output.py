"""Write a result to a file: the whole of it, or nothing.

The bytes go to a temporary file in the target's folder, which then takes the target's name in
one step. A reader never sees half a file, and an interrupted run leaves the old one alone.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
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
        reason = getattr(problem, "strerror", None) or str(problem)
        raise _cannot(path, reason.lower()) from None


def check_output(path: str, inputs: Iterable[str | None]) -> None:
    """Refuse a place that cannot be written, or that one of the inputs is in, before any work."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise _cannot(path, f"`{folder}` is no folder")
    if not os.access(folder, os.W_OK):
        raise _cannot(path, f"`{folder}` cannot be written to")
    for given in inputs:
        both = given is not None and os.path.exists(given) and os.path.exists(path)
        if given is not None and both and os.path.samefile(given, path):
            raise _cannot(path, "it is an input of this command")


def _cannot(path: str, why: str) -> TesseraError:
    return TesseraError(
        error("TSR1911", f"cannot write `{path}`: {why}", notes=("no file was changed",))
    )


def _replace(target: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(target: Path) -> int:
    """The permissions that the file has, or that a new one would get."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
