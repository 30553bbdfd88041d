"""Writes a trace without Tessera: copy this file into the tool that knows the launches.

In: buffers, modules and steps, in the order of the request. Out: the text of a trace
(docs/reference/trace-format.md), and the contents of buffers in a `.safetensors` file beside it.
Plain Python; Tessera's reader checks the result, so this file checks only what the text cannot say.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Triple = tuple[int, int, int]
Notes = Mapping[str, str]

# The types of a trace that `struct` can pack, by their names in PTX.
_PACKED = {"f32": "<f", "f64": "<d"}
_BYTES = {"16": 2, "32": 4, "64": 8, "128": 16}  # what a name ends with; all others: 1
# The names of types in a `.safetensors` file; others are stored as bytes.
_SAFETENSORS = {"f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "s32": "I32"}


@dataclass(frozen=True)
class Address:
    """A device address: `offset` bytes into a buffer. `address + 64` is 64 bytes further."""

    buffer: str
    offset: int = 0

    def __add__(self, offset: int) -> Address:
        return Address(self.buffer, self.offset + offset)

    def __str__(self) -> str:
        return f"{self.buffer}+{self.offset}" if self.offset else self.buffer


@dataclass(frozen=True)
class Scalar:
    """A number by value: its type by its name in PTX, such as `u32` or `f32`."""

    type: str
    value: int | float

    def __str__(self) -> str:
        if self.type in _PACKED:  # exact, also for infinities and NaNs
            bits = struct.pack(_PACKED[self.type], self.value)[::-1].hex()
            return f"{self.type}:0x{bits}"
        return f"{self.type}:{int(self.value)}"


@dataclass(frozen=True)
class Struct:
    """A struct by value: its bytes, and the offsets of the 8-byte words that are addresses."""

    content: bytes
    addresses: Mapping[int, Address]

    def __str__(self) -> str:
        content = bytearray(self.content)
        for offset in self.addresses:
            content[offset : offset + 8] = bytes(8)
        words = ",".join(f"{offset}:{self.addresses[offset]}" for offset in sorted(self.addresses))
        return f"b8[{len(content)}]:{content.hex()}" + (f"@{{{words}}}" if words else "")


class TraceWriter:
    """Collects the records of a trace; `save` writes them.

    `producer` is the namespace of its notes: keys that Tessera keeps but does not understand.
    """

    def __init__(self, producer: str, notes: Notes | None = None) -> None:
        self.producer = producer
        self._first = "//! tessera.trace 1" + self._noted(notes)
        self._declared: list[str] = []
        self._modules: list[str] = []
        self._steps: list[str] = []
        self._contents: dict[str, tuple[str, tuple[int, ...], bytes]] = {}

    def buffer(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        role: str,
        content: bytes | None = None,
        notes: Notes | None = None,
    ) -> Address:
        """An allocation. `role` is `input`, `output`, `weight`, `temp` or `state`."""
        size = _BYTES.get(dtype.lstrip("abcfsu"), 1)
        for extent in shape:
            size *= extent
        if content is not None and len(content) != size:
            raise ValueError(f"{name}: {len(content)} bytes of content for {size} bytes")
        extents = f" shape={'x'.join(map(str, shape))}" if shape else ""
        self._declared.append(
            f"//! buffer {name} bytes={size} role={role} dtype={dtype}{extents}{self._noted(notes)}"
        )
        if content is not None:
            self._contents[name] = (dtype, tuple(shape), content)
        return Address(name)

    def module(self, name: str, ptx: str, notes: Notes | None = None) -> None:
        """The PTX of a module. Several architectures: once for each, under the same name."""
        lines = [line.rstrip("\0") for line in ptx.splitlines()]
        # A comment that starts like a record would be read as one.
        lines = [line.replace("//!", "// !") for line in lines]
        target = next(line.split()[1].rstrip(",") for line in lines if line.startswith(".target"))
        self._modules.append(f"//! module {name} arch={target}{self._noted(notes)}")
        self._modules.extend(lines)

    def launch(
        self,
        kernel: str,
        grid: Triple,
        block: Triple,
        arguments: Sequence[Address | Scalar | Struct],
        *,
        shared_bytes: int = 0,
        cluster: Triple | None = None,
        cooperative: bool = False,
        stream: str = "0",
        notes: Notes | None = None,
    ) -> None:
        """A launch of `MODULE.KERNEL`."""
        fields = [f"//! launch {kernel} grid={_triple(grid)} block={_triple(block)}"]
        fields += [f"smem={shared_bytes}"] if shared_bytes else []
        fields += [f"cluster={_triple(cluster)}"] if cluster else []
        fields += ["cooperative=1"] if cooperative else []
        fields.append(f"args=[{', '.join(map(str, arguments))}]")
        self._step(" ".join(fields), stream, notes)

    def memset(self, target: Address, size: int, value: int = 0, *, stream: str = "0") -> None:
        """Write the byte `value` to `size` bytes."""
        self._step(f"//! memset {target} bytes={size} value={value}", stream)

    def memcpy(self, target: Address, source: Address, size: int, *, stream: str = "0") -> None:
        """Copy `size` bytes."""
        self._step(f"//! memcpy {target} {source} bytes={size}", stream)

    def event(self, name: str, *, stream: str) -> None:
        """Mark what `stream` was given so far."""
        self._step(f"//! event {name}", stream)

    def wait(self, name: str, *, stream: str) -> None:
        """Let `stream` go on only when the event is done."""
        self._step(f"//! wait {name}", stream)

    def text(self, contents: str | None = None) -> str:
        """The trace; `contents` is the name of the file with the buffers' contents."""
        resident = [f"//! resident data={contents}"] if contents else []
        lines = [self._first, *self._declared, *resident, *self._modules, *self._steps]
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the trace, and its contents beside it under the same name, each whole."""
        path = Path(path)
        contents = path.with_suffix(".safetensors") if self._contents else None
        if contents is not None:
            _write_whole(contents, self._safetensors())
        _write_whole(path, self.text(contents and contents.name).encode())

    def _safetensors(self) -> bytes:
        header, start = {}, 0
        for name, (dtype, shape, content) in self._contents.items():
            kind = _SAFETENSORS.get(dtype, "U8")
            extents = list(shape) if dtype in _SAFETENSORS else [len(content)]
            end = start + len(content)
            header[name] = {"dtype": kind, "shape": extents, "data_offsets": [start, end]}
            start = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        parts = [struct.pack("<Q", len(text)), text]
        return b"".join(parts + [content for _, _, content in self._contents.values()])

    def _step(self, record: str, stream: str, notes: Notes | None = None) -> None:
        on_stream = f" stream={stream}" if stream != "0" else ""
        self._steps.append(record + on_stream + self._noted(notes))

    def _noted(self, notes: Notes | None) -> str:
        """Keys of our own: values without blanks or brackets, or JSON."""
        return "".join(f" {self.producer}:{key}={value}" for key, value in (notes or {}).items())


def _triple(extents: Triple) -> str:
    return ",".join(map(str, extents))


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)
