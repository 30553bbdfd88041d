"""`ldmatrix`, `stmatrix` and `movmatrix`: rows of 8x8 matrices to and from fragments.

A row is the 16 bytes at one address; row r of matrix m belongs to the address of lane 8 * m + r.
Registers are [warp, 32] arrays.

Source: PTX ISA, ldmatrix, stmatrix, movmatrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits


def ldmatrix(rows: Bits, num: int, trans: bool = False) -> list[Bits]:
    """Registers from rows: uint8 [warp, num * 8, 16]."""
    warps = rows.shape[0]
    halves = np.ascontiguousarray(rows).view(np.uint16).reshape(warps, num, 8, 8)
    if trans:
        halves = np.ascontiguousarray(halves.transpose(0, 1, 3, 2))
    words = halves.view(np.uint32).reshape(warps, num, 32)
    return [np.ascontiguousarray(words[:, matrix]) for matrix in range(num)]


def stmatrix(registers: Sequence[Operand], trans: bool = False) -> Bits:
    """Rows, uint8 [warp, num * 8, 16], from registers."""
    words = np.stack([bits(32, register).reshape(-1, 32) for register in registers], axis=1)
    warps, num = words.shape[:2]
    halves = words.view(np.uint16).reshape(warps, num, 8, 8)
    if trans:
        halves = halves.transpose(0, 1, 3, 2)
    return np.ascontiguousarray(halves).view(np.uint8).reshape(warps, num * 8, 16)


def movmatrix(register: Operand) -> Bits:
    """`movmatrix.m8n8.trans.b16`: the transpose of an 8x8 matrix held by a warp."""
    words = bits(32, register)
    halves = np.ascontiguousarray(words).view(np.uint16).reshape(-1, 8, 8)
    turned = np.ascontiguousarray(halves.transpose(0, 2, 1))
    return turned.view(np.uint32).reshape(words.shape)
