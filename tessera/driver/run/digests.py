"""Digests of outputs, computed by separate threads during a run.

In: completions. Out: completions without outputs, and the digests of these outputs. A run whose
outputs are not needed keeps none of them: their memory is reused, and the thread that collects
requests does not wait for digests.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from tessera.backend.service import Bytes, Completion

_MOST_THREADS = 8
_LARGE_BYTES = 1 << 20

Sums = Mapping[str, str]
"""Digests by name of the output."""


class Digests:
    """Digests by request."""

    def __init__(self) -> None:
        self._pool = threads("tessera-digest")
        self._under_way: dict[int, Future[Sums]] = {}

    def take(self, completion: Completion) -> Completion:
        """The completion without its outputs, whose digests are computed in the background."""
        self._under_way[completion.request] = self._pool.submit(digests_of, completion.outputs)
        return replace(completion, outputs={})

    def wait(self) -> dict[int, Sums]:
        """Wait for the digests of all taken completions, by request."""
        return {number: made.result() for number, made in sorted(self._under_way.items())}

    def close(self) -> None:
        """Take no more completions."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def digests_of(outputs: Mapping[str, Bytes]) -> Sums:
    """SHA-256 of the bytes of each output, as hexadecimal digits."""
    return {name: hashlib.sha256(content.data).hexdigest() for name, content in outputs.items()}


def digests_of_all(completions: Mapping[int, Completion]) -> dict[int, Sums]:
    """The digests of outputs that were kept."""
    outputs = [completion.outputs for completion in completions.values()]
    if sum(content.nbytes for each in outputs for content in each.values()) < _LARGE_BYTES:
        return dict(zip(completions, map(digests_of, outputs), strict=True))
    with threads("tessera-digest") as pool:
        return dict(zip(completions, pool.map(digests_of, outputs), strict=True))


def threads(name: str) -> ThreadPoolExecutor:
    """A pool of threads for NumPy and hashes, which release the interpreter lock."""
    return ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), thread_name_prefix=name)
