"""Warp-level matrix instructions: data movement, `mma`, `mma.sp`, `wmma`.

In: register operands, each an array of lanes ([warps * 32] or [warps, 32]). Out: results of the
same kind. Imported by `numerics`, `simt` and `emit`.
"""

from tessera.backend.ptx_executor.numerics.matrix import wmma
from tessera.backend.ptx_executor.numerics.matrix.elements import ldmatrix, movmatrix, stmatrix
from tessera.backend.ptx_executor.numerics.matrix.mma import mma
from tessera.backend.ptx_executor.numerics.matrix.sparse import mma_sp

__all__ = ["ldmatrix", "mma", "mma_sp", "movmatrix", "stmatrix", "wmma"]
