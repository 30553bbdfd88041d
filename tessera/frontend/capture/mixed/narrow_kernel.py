"""Products with quantized weights, in Triton: weights are widened tile by tile, in registers.

In: rows [row, k], sorted by expert where there are several, codes [expert, n, k] of 8 bits, or of 4
bits two to a byte, scales [expert, block of n, group of k], perhaps zeros in words along n. Out:
sums [part, row, n] in f32, each over one part of k: where a matrix is too small to keep a GPU busy,
several programs share its inputs. A weight is rounded to the type of the rows before it is
multiplied, so that it is the one that `stored_weights` computes.

A program has a tile of rows and columns that only the launch determines, so the rows that it reads
and the elements that it writes do not depend on data. It goes through the experts that have a row
in its tile, as `experts.kernels.grouped_product` does.
"""

from __future__ import annotations

try:
    import triton.language as tl
except ImportError:  # nothing is compiled then, but the module can be imported
    tl = None


def narrow_product(
    rows: tl.tensor,
    codes: tl.tensor,
    scales: tl.tensor,
    zeros: tl.tensor,
    ends: tl.tensor,
    out: tl.tensor,
    count: tl.tensor,
    stride: tl.tensor,
    N: tl.constexpr,
    K: tl.constexpr,
    PART: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    LEAST: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    POWERS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    EXPERTS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    """A tile of sums over PART of the inputs. A whole number of groups is in BLOCK_K, or one group
    has all of it; LEAST is what a code of 0 stands for; WIDE is a power of two from EXPERTS on."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(1) * BLOCK_M
    m = first + tl.arange(0, BLOCK_M)
    part = tl.program_id(2)
    inner = tl.arange(0, BLOCK_K)
    is_n, is_m = n < N, m < count
    EACH: tl.constexpr = 8 // BITS
    NEAR: tl.constexpr = BLOCK_K // GROUP if GROUP < BLOCK_K else 1
    PER_WORD: tl.constexpr = 32 // BITS
    byte = tl.arange(0, BLOCK_K // EACH)
    near = tl.arange(0, NEAR)
    left = rows + m.to(tl.int64)[None, :] * stride
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    begin = 0
    end = 1
    if EXPERTS > 1:  # the experts of the first and of the last row
        expert = tl.arange(0, WIDE)
        every = tl.load(ends + expert, mask=expert < EXPERTS, other=2147483647)
        last = tl.minimum(first + BLOCK_M, count) - 1
        begin = tl.sum((every <= first).to(tl.int32))
        end = tl.minimum(tl.sum((every <= last).to(tl.int32)) + 1, EXPERTS)
    for number in range(begin, end):
        is_own = is_m
        if EXPERTS > 1:
            own_first = tl.load(ends + number - 1, mask=number > 0, other=0)
            is_own = is_m & (m >= own_first) & (m < tl.load(ends + number))
        own = tl.cast(number, tl.int64)
        row_codes = codes.to(tl.pointer_type(tl.uint8)) + own * (N * (K // EACH))
        row_codes += n.to(tl.int64)[:, None] * (K // EACH)
        row_scales = scales + own * (BLOCKS * GROUPS) + (n // BLOCK_ROWS)[:, None] * GROUPS
        product = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        for step in tl.range(0, PART, BLOCK_K, num_stages=STAGES):
            k = part * PART + step
            at = k // EACH + byte
            is_there = is_n[:, None] & (at < K // EACH)[None, :]
            code = tl.load(row_codes + at[None, :], mask=is_there, other=0)
            if BITS == 4:
                code = tl.interleave(code & 15, code >> 4)
            if IS_FLOAT and BITS == 4:
                half = ((code.to(tl.int16) & 0x7) << 9).to(tl.float16, bitcast=True)
                size = half.to(tl.float32) * 16384.0
                value = tl.where(code > 7, -size, size)
            elif IS_FLOAT and tl.target_info.cuda_capability_geq(8, 9):
                value = code.to(tl.float8e4nv, bitcast=True).to(tl.float32)
            elif IS_FLOAT:
                half = ((code.to(tl.int16) & 0x7F) << 7).to(tl.float16, bitcast=True)
                size = half.to(tl.float32) * 256.0
                size = tl.where(size == 480.0, float("nan"), size)
                value = tl.where(code > 127, -size, size)
            elif LEAST == 0:
                value = code.to(tl.int8, bitcast=True).to(tl.float32)
            else:
                value = code.to(tl.float32) + LEAST
            value = tl.reshape(value, (BLOCK_N, NEAR, BLOCK_K // NEAR))
            group = k // GROUP + near
            is_group = is_n[:, None] & (group < GROUPS)[None, :]
            scale = tl.load(row_scales + group[None, :], mask=is_group, other=0)
            if HAS_ZEROS:
                of_zeros = zeros + own * ((N + PER_WORD - 1) // PER_WORD * GROUPS)
                word = (n // PER_WORD)[:, None] * GROUPS + group[None, :]
                zero = tl.load(of_zeros + word, mask=is_group, other=0)
                zero = (zero >> (n % PER_WORD * BITS)[:, None]) & ((1 << BITS) - 1)
                value = value - (zero.to(tl.float32) + LEAST)[:, :, None]
            wide = scale.to(tl.float32)
            if POWERS:
                wide = (scale.to(tl.int32) << 23).to(tl.float32, bitcast=True)
                wide = tl.where(scale == 0, 5.877471754111438e-39, wide)
            value = tl.reshape(value * wide[:, :, None], (BLOCK_N, BLOCK_K))
            is_input = is_own[None, :] & (k + inner < K)[:, None]
            right = tl.load(left + (k + inner)[:, None], mask=is_input, other=0.0)
            product = tl.dot(value.to(right.dtype), right, product, input_precision="ieee")
        total = tl.where(is_own[None, :], product, total)
    target = out + (part * count + m).to(tl.int64)[None, :] * N + n[:, None]
    tl.store(target, total, mask=is_n[:, None] & is_m[None, :])
