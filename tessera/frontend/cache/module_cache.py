"""Parsed modules on disk, found by the text they were parsed from.

A file holds a magic line that names the format and the code that wrote it, the checksum and size of
an index, the index (everything but function bodies, as JSON), and the bodies, each with a checksum
of its own in the index. Reading the index alone costs a small part of parsing; bodies are decoded
on demand.

The cache never makes a result wrong and never fails a command: a file that is damaged, from another
release, or not ours is treated as absent; a folder that others may write to is not used at all; a
write that does not succeed leaves nothing behind. Files appear whole, by renaming, so that any
number of processes can share a folder. Nothing in a file is executed (`cache_codec`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tessera.diagnostics import Source
from tessera.frontend.cache.cache_codec import (
    decode_body,
    decode_record,
    encode_body,
    encode_record,
)
from tessera.frontend.cache.code_digest import code_digest
from tessera.frontend.cache.private_files import (
    CHECKSUM_BYTES,
    TRIMMER,
    checksum,
    is_private,
    read_private,
    write_whole,
)
from tessera.frontend.text.bulk import collector_paused
from tessera.frontend.text.grammar import grammar_text
from tessera.ir.ptx import syntax as ptx
from tessera.ir.version import __version__

FORMAT = 1
SUFFIX = ".module"
# The code that turns a text into a module; releases that differ here share no files.
_SOURCES = (
    "frontend/ptx",
    "frontend/text",
    "frontend/cache",
    "ir/ptx",
    "ir/opcodes/**",
    "ir/verify_ptx",
)


@functools.cache
def magic() -> bytes:
    """The first line of a file: format, release, and a digest of the code that reads PTX."""
    digest = code_digest(_SOURCES, grammar_text("ptx").encode())
    return f"tessera-module {FORMAT} {__version__} {digest}\n".encode()


def content_key(text: str) -> str:
    """The name under which a module's text is cached."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=24, person=b"tessera-ptx").hexdigest()


@dataclass(frozen=True, slots=True)
class CachedModule:
    """A module whose bodies are still bytes.

    `index` is the module with every body left out; `is_clean` says that verifying it found nothing.
    """

    index: ptx.Module
    is_clean: bool
    bodies: tuple[tuple[str, int, int, str] | None, ...]
    data: bytes

    def body(self, name: str) -> tuple[ptx.Statement, ...]:
        """Decode the body of a function."""
        for entry in self.bodies:
            if entry is not None and entry[0] == name:
                return self._decode(entry)
        raise KeyError(name)

    def module(self) -> ptx.Module:
        """The whole module, with every body decoded."""
        with collector_paused():
            return replace(self.index, items=tuple(self._items()))

    def _items(self) -> Iterator[ptx.Item]:
        for item, entry in zip(self.index.items, self.bodies, strict=True):
            if entry is not None and isinstance(item, ptx.Function):
                yield replace(item, body=self._decode(entry))
            else:
                yield item

    def _decode(self, entry: tuple[str, int, int, str]) -> tuple[ptx.Statement, ...]:
        _, start, size, expected = entry
        data = self.data[start : start + size]
        if checksum(data).hex() != expected:
            raise ValueError("checksum of a body does not match")
        return decode_body(data)


class ModuleCache:
    """A folder of cached modules; `find` and `store` never raise because of its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, source: Source) -> CachedModule | None:
        """The cached module of a source's text, or None."""
        if not is_private(self.folder):
            return None
        try:
            data = read_private(self.folder / (content_key(source.text) + SUFFIX))
            return None if data is None else _decode_file(data, source)
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None

    def store(self, source: Source, module: ptx.Module, *, is_clean: bool) -> None:
        """Store a module under the text of its source."""
        with contextlib.suppress(OSError, RecursionError, OverflowError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not is_private(self.folder):
                return
            name = content_key(source.text) + SUFFIX
            data = _encode_file(module, is_clean)
            write_whole(self.folder / name, data)
            TRIMMER.wrote(self.folder, len(data))


def _encode_file(module: ptx.Module, is_clean: bool) -> bytes:
    items: list[object] = []
    bodies: list[object] = []
    blobs: list[bytes] = []
    offset = 0
    for item in module.items:
        entry = None
        if isinstance(item, ptx.Function) and item.body is not None:
            blob = encode_body(item.body)
            entry = [item.name, offset, len(blob), checksum(blob).hex()]
            blobs.append(blob)
            offset += len(blob)
            item = replace(item, body=None)
        if isinstance(item, ptx.Section):
            item = [item.at, len(item.text)]  # type: ignore[assignment]
        items.append(encode_record(item))
        bodies.append(entry)
    header = [module.version, module.target, module.address_size, is_clean]
    index = json.dumps([header, items, bodies], separators=(",", ":")).encode("ascii")
    size = len(index).to_bytes(8, "little")
    return b"".join((magic(), checksum(index), size, index, *blobs))


def _decode_file(data: bytes, source: Source) -> CachedModule | None:
    line = magic()
    start = len(line) + CHECKSUM_BYTES + 8
    if not data.startswith(line) or len(data) < start:
        return None
    expected = data[len(line) : len(line) + CHECKSUM_BYTES]
    size = int.from_bytes(data[start - 8 : start], "little")
    index = memoryview(data)[start : start + size]
    if checksum(index) != expected:
        return None
    (version, target, address_size, is_clean), items, bodies = json.loads(bytes(index))
    module = ptx.Module(
        version=(version[0], version[1]),
        target=tuple(target),
        address_size=address_size,
        items=tuple(_decode_item(item, source) for item in items),
        source=source,
    )
    places = tuple(e and (e[0], start + size + e[1], e[2], e[3]) for e in bodies)
    return CachedModule(module, is_clean, places, data)


def _decode_item(data: Any, source: Source) -> Any:
    """An item; a debug section is kept as its place in the text."""
    if isinstance(data[0], int):
        at, length = data
        return ptx.Section(source.text[at : at + length], at)
    return decode_record(data)
