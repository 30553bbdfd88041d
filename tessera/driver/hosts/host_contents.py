"""Weights from files on this host, checked against digests from the driver.

In: names, ranges of bytes, digests, and a path on this host: a file of arrays, or a folder with
several such files, which may be a checkpoint. Out: the bytes. A missing array, or an array with
other bytes, is an error that names the host and the path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack, suppress

import numpy as np

from tessera.backend.hosts.messages import OwnWeight
from tessera.backend.service import Bytes
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.frontend.contents.checkpoint import open_checkpoint, weights_of
from tessera.frontend.contents.open_contents import open_arrays
from tessera.ir.program.program import Program

_Way = tuple[Container[str], Callable[[str], Bytes]]
_HINT = (
    "`contents` in the file of hosts is a path on that host; leave it out, and contents are sent"
)


def digest_of(content: Bytes) -> str:
    """The SHA-256 digest of an array."""
    return hashlib.sha256(np.ascontiguousarray(content).data).hexdigest()


def own_contents(
    host: str, path: str, wanted: Sequence[OwnWeight], programs: Sequence[Program] = ()
) -> dict[str, Bytes]:
    """The arrays with these names and digests, or parts of them, from files of this host.

    `programs` map tensors of a checkpoint to weights if their names differ.
    """
    if not wanted:
        return {}
    if not os.path.exists(path):
        raise _bad(host, path, "do not exist there")
    try:
        with ExitStack() as opened:
            ways = _ways(path, programs, opened)
            return {weight.name: _array(ways, host, path, weight) for weight in wanted}
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise _bad(host, path, f"cannot be read: {reason}") from None
    except TesseraError as problem:
        if problem.diagnostics[0].code == "TSR5071":
            raise
        raise _bad(host, path, f"cannot be used: {problem.diagnostics[0].headline}") from None


def _ways(path: str, programs: Sequence[Program], opened: ExitStack) -> list[_Way]:
    """All ways to read arrays by the names of buffers."""
    ways: list[_Way] = []
    for name in _files(path):
        arrays = open_arrays(name)
        opened.callback(arrays.close)
        ways.append((arrays.sizes, arrays.read))
    if os.path.isdir(path):
        # If it is not a checkpoint, arrays are found by their names alone.
        with suppress(TesseraError):
            checkpoint = open_checkpoint(path)
            opened.callback(checkpoint.close)
            for program in programs:
                names = [buffer.name for buffer in program.declared_buffers()]
                weights = weights_of(program, checkpoint, names)
                ways.append((weights.tensor_of, weights.read))
    return ways


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name.endswith((".npz", ".safetensors")))
    return [os.path.join(path, name) for name in names]


def _array(ways: Sequence[_Way], host: str, path: str, wanted: OwnWeight) -> Bytes:
    """Among the arrays with a name, the bytes of the one that has those of the driver."""
    name, sha256, first, end = wanted
    contents = [np.array(read(name)[first:end]) for names, read in ways if name in names]
    if not contents:
        raise _bad(host, path, f"have no array `{name}`")
    for content in contents:
        if digest_of(content) == sha256:
            return content
    raise _bad(host, path, f"have other bytes in `{name}` than the driver's")


def _bad(host: str, path: str, what: str) -> TesseraError:
    headline = f"the contents `{path}` of host `{host}` {what}"
    return TesseraError(error("TSR5071", headline, hint=_HINT), ExitCode.NO_DEVICE)
