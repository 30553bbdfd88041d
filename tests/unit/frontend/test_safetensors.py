"""Safetensors files with one thing wrong each.

The reference package (version 0.8.0) judges all rows as the table says, but for two that its format
description forbids and it reads: spaces in front of the header, and a name twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.contents.open_contents import open_arrays


def entry(dtype: Any = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    """An array of a header."""
    shape = list(shape) if isinstance(shape, tuple) else shape
    offsets = list(offsets) if isinstance(offsets, tuple) else offsets
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def file_of(header: Any, data: int = 16, length: int | None = None) -> bytes:
    """A file with a header and so many bytes of data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    return size.to_bytes(8, "little") + text + bytes(range(256)) * (data // 256) + bytes(data % 256)


TWO = {"a": entry(offsets=(0, 16)), "b": entry(offsets=(16, 32))}
ONE = b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}'
# What to write, and whether the reference reads it.
CASES: dict[str, tuple[bytes, bool]] = {
    "one array": (file_of({"a": entry()}), True),
    "two arrays": (file_of(TWO, 32), True),
    "in another order": (file_of({"b": TWO["b"], "a": TWO["a"]}, 32), True),
    "no array": (file_of({}, 0), True),
    "a single number": (file_of({"a": entry(shape=(), offsets=(0, 4))}, 4), True),
    "an empty array": (file_of({"a": entry(shape=(0, 4), offsets=(0, 0))}, 0), True),
    "an empty array between": (
        file_of({**TWO, "e": entry(shape=(0,), offsets=(16, 16))}, 32),
        True,
    ),
    "metadata": (file_of({"__metadata__": {"k": "v"}, "a": entry()}), True),
    "no metadata": (file_of({"__metadata__": None, "a": entry()}), True),
    "spaces behind": (file_of(ONE + b"}   "), True),
    "every type": (
        file_of({"a": entry("BF16", (8,)), "b": entry("F8_E4M3", (16,), (16, 32))}, 32),
        True,
    ),
    "zero times huge": (file_of({"a": entry(shape=(0, 2**63), offsets=(0, 0))}, 0), True),
    "another key": (file_of({"a": {**entry(), "more": 1}}), True),
    "bytes left over": (file_of({"a": entry()}, 17), False),
    "bytes without array": (file_of({}, 8), False),
    "too short": (file_of({"a": entry()}, 15), False),
    "a hole": (file_of({"a": TWO["a"], "b": entry(offsets=(20, 36))}, 36), False),
    "a hole in front": (file_of({"a": entry(offsets=(4, 20))}, 20), False),
    "an overlap": (file_of({"a": TWO["a"], "b": entry(offsets=(8, 24))}, 24), False),
    "the same bytes": (file_of({"a": entry(), "b": entry()}), False),
    "an overlap and a tail": (file_of({"a": TWO["a"], "b": entry(offsets=(8, 24))}, 32), False),
    "backwards": (file_of({"a": entry(offsets=(16, 0))}), False),
    "negative": (file_of({"a": entry(offsets=(-16, 0))}, 0), False),
    "float offsets": (file_of({"a": entry(offsets=(0.0, 16.0))}), False),
    "a float shape": (file_of({"a": entry(shape=(4.0,))}), False),
    "a negative shape": (file_of({"a": entry(shape=(-1, -4))}), False),
    "true": (file_of({"a": entry(shape=(True, 4))}), False),
    "false offsets": (file_of({"a": entry(offsets=(False, 16))}), False),
    "texts": (file_of({"a": entry(shape=("4",))}), False),
    "no numbers": (file_of({"a": entry(shape=None)}), False),
    "one offset": (file_of({"a": entry(offsets=(0,))}), False),
    "three offsets": (file_of({"a": entry(offsets=(0, 8, 16))}), False),
    "NaN": (file_of(ONE.replace(b"[0, 16]", b"[NaN, 16]") + b"}"), False),
    "infinity": (file_of(ONE.replace(b"[4]", b"[Infinity]") + b"}"), False),
    "an exponent": (file_of(ONE.replace(b"16]", b"1.6e1]") + b"}"), False),
    "a huge number": (file_of(ONE.replace(b"16]", b"9" * 5000 + b"]") + b"}"), False),
    "past 64 bits": (file_of({"a": entry(shape=(2**64,))}), False),
    "a product past 64 bits": (file_of({"a": entry(shape=(2**40, 2**40))}), False),
    "many extents": (file_of({"a": entry(shape=[2**32] * 2000)}), False),
    "type and bytes differ": (file_of({"a": entry("F64")}), False),
    "shape and bytes differ": (file_of({"a": entry(shape=(5,))}), False),
    "an unknown type": (file_of({"a": entry("F33")}), False),
    "a type that is a number": (file_of({"a": entry(4)}), False),
    "a type that is a list": (file_of({"a": entry(["F32"])}), False),
    "small letters": (file_of({"a": entry("f32")}), False),
    "no type": (file_of({"a": {"shape": [4], "data_offsets": [0, 16]}}), False),
    "no shape": (file_of({"a": {"dtype": "F32", "data_offsets": [0, 16]}}), False),
    "no offsets": (file_of({"a": {"dtype": "F32", "shape": [4]}}), False),
    "an array that is a list": (file_of({"a": [1]}), False),
    "a list": (file_of([1], 0), False),
    "a text": (file_of("a", 0), False),
    "null": (file_of(b"null", 0), False),
    "not JSON": (file_of(b"{hello", 0), False),
    "two objects": (file_of(ONE + b"}{}"), False),
    "spaces in front": (file_of(b"  " + ONE + b"}"), False),
    "not UTF-8": (file_of(b'{"\xff": ' + ONE[6:] + b"}"), False),
    "metadata that is no text": (file_of({"__metadata__": {"k": 1}, "a": entry()}), False),
    "metadata that is a list": (file_of({"__metadata__": [], "a": entry()}), False),
    "a name twice": (file_of(ONE + b", " + ONE[1:] + b"}"), False),
    "a key twice": (file_of(ONE.replace(b'"shape"', b'"dtype": "F32", "shape"') + b"}"), False),
    "a header longer than the file": (file_of({"a": entry()}, length=1 << 20), False),
    "a header of 2^63": (file_of({"a": entry()}, length=(1 << 64) - 1), False),
    "a header that is too short": (file_of({"a": entry()}, length=20), False),
    "an empty header": (file_of(b"", 0), False),
    "seven bytes": (bytes(7), False),
    "nothing": (b"", False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file(tmp_path: Path, name: str) -> None:
    data, verdict = CASES[name]
    path = tmp_path / "data.safetensors"
    path.write_bytes(data)
    if verdict:
        open_arrays(str(path)).close()
        return
    with pytest.raises(TesseraError, match="TSR1183") as caught:
        open_arrays(str(path))
    assert len(caught.value.diagnostics) == 1
    assert len(str(caught.value.diagnostics[0].headline)) < 300


def test_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "data.safetensors"
    data = np.arange(8, dtype=np.float32)
    path.write_bytes(file_of(TWO, 0) + data.tobytes())
    arrays = open_arrays(str(path))
    assert arrays.read("b").tobytes() == data[4:].tobytes()
    assert (arrays.sizes, arrays.types["a"].text()) == ({"a": 16, "b": 16}, "float32 of shape (4,)")
    arrays.close()
