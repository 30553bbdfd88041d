"""The namespace of generated code: every name that it may use, with its value.

The emitters write these names into the source of blocks. Generated code sees only these names and
the constants and tables that its program adds.
"""

from __future__ import annotations

import numpy as np

from tessera.backend.ptx_executor.emit.kinds import ValueKind
from tessera.backend.ptx_executor.memory import access, spaces
from tessera.backend.ptx_executor.memory.lanes import blend
from tessera.backend.ptx_executor.memory.memory import UNSIGNED, Array
from tessera.backend.ptx_executor.memory.spaces import SPACES
from tessera.backend.ptx_executor.numerics import (
    approx,
    bitwise,
    compare,
    convert,
    floats,
    integer,
    video,
)
from tessera.backend.ptx_executor.simt import (
    async_copy,
    builtins,
    matrix_ops,
    mbarrier,
    tensor_copy,
    warp,
)

_TYPES: dict[str, object] = {
    "np": np,
    "b1": np.bool_,
    "c16": np.complex128,
    **{f"u{width}": np.dtype(f"u{width}") for width in (1, 2, 4, 8)},
    **{f"i{width}": np.dtype(f"i{width}") for width in (1, 2, 4, 8)},
    "f4": np.dtype("f4"),
    "f8": np.dtype("f8"),
}

# Modules whose functions are called with a prefix: `integer.add(...)`.
_MODULES: dict[str, object] = {
    "integer": integer,
    "bitwise": bitwise,
    "compare": compare,
    "floats": floats,
    "approx": approx,
    "video": video,
    "convert": convert,
    "mbarrier": mbarrier,
}

_FUNCTIONS = (
    access.join_words,
    access.load,
    access.load_vector,
    access.split_words,
    access.store,
    access.strong,
    spaces.is_in_space,
    spaces.map_to_rank,
    spaces.rank_of,
    async_copy.copy_bulk,
    async_copy.copy_small,
    builtins.builtin___assertfail,
    builtins.builtin_free,
    builtins.builtin_malloc,
    builtins.builtin_vprintf,
    builtins.check_table,
    builtins.copy_local,
    builtins.find_function,
    builtins.open_frame,
    builtins.sleep,
    builtins.trap,
    matrix_ops.ldmatrix,
    matrix_ops.movmatrix,
    matrix_ops.multiply,
    matrix_ops.stmatrix,
    matrix_ops.wgmma_mma,
    matrix_ops.wmma_load,
    matrix_ops.wmma_store,
    tensor_copy.copy_map,
    tensor_copy.load_tensor,
    tensor_copy.replace_map,
    tensor_copy.store_tensor,
    warp.activemask,
    warp.elect,
    warp.match_all,
    warp.match_any,
    warp.redux,
    warp.redux_float,
    warp.shfl,
    warp.vote,
)

NAMESPACE: dict[str, object] = {
    **_TYPES,
    **_MODULES,
    "sel": blend,
    **{function.__name__: function for function in _FUNCTIONS},
    **{f"gather_{space}": gather for space, (gather, _) in SPACES.items()},
    **{f"scatter_{space}": scatter for space, (_, scatter) in SPACES.items()},
}


def constant_array(bits: int, kind: ValueKind) -> Array:
    """A value that all lanes share, held as its kind says."""
    if kind.form == "p":
        return np.array([[bool(bits)]])
    if kind.width == 16:
        pair = np.array([[bits & (1 << 64) - 1, bits >> 64]], dtype=np.uint64)
        return pair.view(np.complex128)
    raw = np.array([[bits]], dtype=UNSIGNED[kind.width])
    form = {"u": "u", "s": "i", "f": "f"}[kind.form]
    return raw.view(np.dtype(f"{form}{kind.width}"))
