"""Write a result to a file: the whole of it, or nothing.

The bytes go to a temporary file in the target's folder, which then takes the target's name in
one step. A reader never sees half a file, and an interrupted run leaves the old one alone.
"""

from __future__ import annotations

import os
import stat
import tempfile
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
        raise TesseraError(
            error(
                "TSR1911",
                f"cannot write `{path}`: {reason.lower()}",
                notes=("no file was changed",),
            )
        ) from None


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
