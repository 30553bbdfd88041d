"""A digest of the code that makes a cache's entries: different code shares no files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

from tessera.frontend.text.grammar import PACKAGE


def code_digest(places: Sequence[str], start: bytes = b"") -> str:
    """The digest of `start` and of Python files: a file, a folder, or all files below
    `folder/**`."""
    digest = hashlib.blake2b(start, digest_size=12)
    for place in places:
        for path in files(place):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


def files(place: str) -> Iterator[str]:
    """The files of a place, in order."""
    return _files(os.path.join(PACKAGE, place.removesuffix("/**")), place.endswith("/**"))


def _files(place: str, is_deep: bool) -> Iterator[str]:
    if place.endswith(".py"):
        yield place
        return
    with os.scandir(place) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                yield entry.path
            elif is_deep and entry.is_dir():
                yield from _files(entry.path, True)
