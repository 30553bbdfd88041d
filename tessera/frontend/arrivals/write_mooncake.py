"""Writes arrivals as Mooncake's lines of JSON, which other simulators read (e.g. Dynamo's replay).

In: records. Out: a file, whole or not at all. Times are milliseconds after the first request, exact
to the nanosecond. `hash_ids` are empty where the prefixes that requests share are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import IO

from tessera.output import Kind, write_stream

Lengths = tuple[float, int, int, Sequence[int]]
"""The arrival time of a request in ns, its input and output tokens, and its pieces."""


def mooncake_line(at_ns: float, prompt: int, answer: int, pieces: Sequence[int] = ()) -> str:
    """One request."""
    whole, rest = divmod(round(Fraction(at_ns)), 1_000_000)
    time = f"{whole}.{rest:06}".rstrip("0").rstrip(".") if rest else str(whole)
    return (
        f'{{"timestamp": {time}, "input_length": {prompt}, "output_length": {answer}, '
        f'"hash_ids": [{", ".join(map(str, pieces))}]}}'
    )


def write_mooncake(path: str, requests: Iterable[Lengths]) -> None:
    """Write requests in the order of their arrival."""

    def write(stream: IO[bytes]) -> None:
        for request in requests:
            stream.write((mooncake_line(*request) + "\n").encode())

    write_stream(path, write, Kind.ARRIVALS)
