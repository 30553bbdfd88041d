"""Warp-level matrix instructions: data movement, `mma`, `wmma`.

Every register operand is an array of lanes ([warps * 32] or [warps, 32]), and so is every result.
"""

from tessera.backend.cpu.numerics.matrix import wmma
from tessera.backend.cpu.numerics.matrix.mma import mma
from tessera.backend.cpu.numerics.matrix.movement import ldmatrix, movmatrix, stmatrix

__all__ = ["ldmatrix", "mma", "movmatrix", "stmatrix", "wmma"]
