"""Many small named arrays in one file: a table of contents and one compressed blob."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays in the order given."""
    contents = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    blob = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    np.savez_compressed(
        path,
        contents=np.frombuffer(json.dumps(contents).encode(), np.uint8),
        blob=np.frombuffer(blob, np.uint8),
    )


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as file:
        contents, blob = json.loads(file["contents"].tobytes()), file["blob"]
    arrays, start = {}, 0
    for name, dtype, shape in contents:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        arrays[name] = blob[start : start + size].view(dtype).reshape(shape)
        start += size
    return arrays
