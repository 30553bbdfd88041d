"""Results of the analysis of kernels on disk, by the content that they were computed from.

In: a name that stands for module texts and a kernel, and JSON values. Out: the values kept under
that name, or None. A file holds a magic line that names the format and the code that wrote it, a
checksum, and the values.

Like the cache of modules (`cache`), it never makes a result wrong and never fails a command: a file
that is damaged, from another release or not ours counts as absent, and nothing in a file is
executed.
"""

from __future__ import annotations

import contextlib
import functools
import json
from pathlib import Path

from tessera.frontend.cache.code_digest import code_digest
from tessera.frontend.cache.private_files import (
    CHECKSUM_BYTES,
    TRIMMER,
    checksum,
    is_private,
    read_private,
    write_whole,
)
from tessera.ir.version import __version__

FORMAT = 1
SUFFIX = ".regions"
MAX_FILE_BYTES = 64 << 20
# The code that turns a text into accesses; releases that differ here share no files.
_SOURCES = (
    "passes/**",
    "ir/**",
    "frontend/ptx",
    "frontend/trace",
    "frontend/text",
    "diagnostics.py",
)


@functools.cache
def magic() -> bytes:
    """The first line of a file: format, release, and a digest of the code of the analysis."""
    digest = code_digest(_SOURCES)
    return f"tessera-regions {FORMAT} {__version__} {digest}\n".encode()


class AnalysisCache:
    """A folder of findings; `find` and `keep` never raise because of its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, name: str) -> object:
        """The values kept under a name, or None."""
        if not is_private(self.folder):
            return None
        try:
            data = read_private(self.folder / (name + SUFFIX))
            return None if data is None else _decode(data)
        except (OSError, ValueError, RecursionError):
            return None

    def keep(self, name: str, values: object) -> None:
        """Store values under a name and replace the values there."""
        with contextlib.suppress(OSError, RecursionError):
            text = json.dumps(values, separators=(",", ":")).encode("ascii")
            if len(text) > MAX_FILE_BYTES:
                return
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if is_private(self.folder):
                whole = b"".join((magic(), checksum(text), text))
                write_whole(self.folder / (name + SUFFIX), whole)
                TRIMMER.wrote(self.folder, len(whole))


def _decode(data: bytes) -> object:
    start = len(magic()) + CHECKSUM_BYTES
    if not data.startswith(magic()) or len(data) > start + MAX_FILE_BYTES:
        return None
    text = memoryview(data)[start:]
    if checksum(text) != data[len(magic()) : start]:
        return None
    return json.loads(bytes(text))
