"""Checkpoint folders, as model libraries write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"

Tensor = tuple[str, str, tuple[int, ...], bytes]


def write(path: Path, *tensors: Tensor, metadata: dict[str, str] | None = None) -> None:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    start = 0
    for name, kind, shape, content in tensors:
        offsets = [start, start + len(content)]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": offsets}
        start = offsets[1]
    text = json.dumps(header).encode()
    content = b"".join(content for *_, content in tensors)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


def write_index(folder: Path, table: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": table}))


def sharded(folder: Path, *shards: Tensor) -> None:
    """A folder with each tensor in a file of its own."""
    table = {}
    for number, tensor in enumerate(shards):
        name = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        write(folder / name, tensor)
        table[tensor[0]] = name
    write_index(folder, table)
