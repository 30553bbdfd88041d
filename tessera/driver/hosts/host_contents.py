"""Weights from a file that a host has itself, held against digests that the driver sends.

In: names, digests, and a path on this host. Out: the bytes. A file that is not there, or has other
bytes, is one error that names the host and the path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np

from tessera.backend.hosts.channel import Part
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.frontend.contents.open_contents import ArrayFile, open_arrays

_HINT = (
    "`contents` in the file of hosts is a path on that host; leave it out, and contents are sent"
)


def digest_of(content: Part) -> str:
    """The digest that both ends compute."""
    return hashlib.sha256(np.ascontiguousarray(content).data).hexdigest()


def own_contents(host: str, path: str, wanted: Sequence[tuple[str, str]]) -> dict[str, Part]:
    """The arrays with these names and digests, from a file of this host."""
    if not wanted:
        return {}
    if not os.path.exists(path):
        raise _bad(host, path, "do not exist there")
    try:
        arrays = open_arrays(path)
    except TesseraError as problem:
        raise _bad(host, path, f"cannot be used: {problem.diagnostics[0].headline}") from None
    try:
        return {name: _array(arrays, host, path, name, sha256) for name, sha256 in wanted}
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise _bad(host, path, f"cannot be read: {reason}") from None
    finally:
        arrays.close()


def _array(arrays: ArrayFile, host: str, path: str, name: str, sha256: str) -> Part:
    if name not in arrays.sizes:
        raise _bad(host, path, f"have no array `{name}`")
    content = np.array(arrays.read(name))
    if digest_of(content) != sha256:
        raise _bad(host, path, f"have other bytes in `{name}` than the driver's")
    return content


def _bad(host: str, path: str, what: str) -> TesseraError:
    headline = f"the contents `{path}` of host `{host}` {what}"
    return TesseraError(error("TSR5071", headline, hint=_HINT), ExitCode.NO_DEVICE)
