"""The product of rows that are sorted by expert with the weights of their experts, in Triton; and
the greatest numbers of each row, which choose the experts.

`grouped_product`. In: rows [row, k], weights [expert, k, n] by strides, `ends`: for each expert the
row after its last row. Out: [row, n]; rows after the last end are zero.

A program has a tile of rows and columns that only the launch determines, so the rows that it reads
and the elements that it writes do not depend on data. It goes through the experts that have a row
in its tile, and keeps the rows of that expert from each product: the weights of other experts do
not affect them.

`greatest`. In: rows [row, column]. Out: the k greatest numbers of each row and their places, in
order; of equal numbers the first comes first. Each program has one row.
"""

from __future__ import annotations

try:
    import triton.language as tl
except ImportError:  # nothing is compiled then, but the module can be imported
    tl = None


def grouped_product(
    rows: tl.tensor,
    weights: tl.tensor,
    ends: tl.tensor,
    out: tl.tensor,
    count: tl.tensor,
    stride_r: tl.tensor,
    stride_e: tl.tensor,
    stride_k: tl.tensor,
    stride_n: tl.tensor,
    K: tl.constexpr,
    N: tl.constexpr,
    EXPERTS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    """A tile of the result. WIDE is a power of two that is at least EXPERTS."""
    first = tl.program_id(0) * BLOCK_M
    after = tl.minimum(first + BLOCK_M, count)
    row = first + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    is_column = column < N
    expert = tl.arange(0, WIDE)
    every = tl.load(ends + expert, mask=expert < EXPERTS, other=2147483647)
    # The experts of the first and of the last row: the number of experts that ended before.
    begin = tl.sum((every <= first).to(tl.int32))
    end = tl.minimum(tl.sum((every <= after - 1).to(tl.int32)) + 1, EXPERTS)
    left = rows + row.to(tl.int64)[:, None] * stride_r + inner[None, :]
    right = weights + inner.to(tl.int64)[:, None] * stride_k
    right += column.to(tl.int64)[None, :] * stride_n
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for number in range(begin, end):
        own_end = tl.load(ends + number)
        own_first = tl.load(ends + number - 1, mask=number > 0, other=0)
        is_own = (row >= own_first) & (row < tl.minimum(own_end, count))
        if own_end > own_first:
            product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            chosen = right + tl.cast(number, tl.int64) * stride_e
            for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
                if K % BLOCK_K == 0:
                    a = tl.load(left + k, mask=is_own[:, None], other=0.0)
                    b = tl.load(chosen + k * stride_k, mask=is_column[None, :], other=0.0)
                else:
                    is_inner = inner < K - k
                    a = tl.load(left + k, mask=is_own[:, None] & is_inner[None, :], other=0.0)
                    b = tl.load(
                        chosen + k * stride_k,
                        mask=is_inner[:, None] & is_column[None, :],
                        other=0.0,
                    )
                product = tl.dot(a, b, product, input_precision="ieee")
            total = tl.where(is_own[:, None], product, total)
    target = out + row.to(tl.int64)[:, None] * N + column[None, :]
    kept = (row < count)[:, None] & is_column[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=kept)


def greatest(
    rows: tl.tensor,
    values: tl.tensor,
    places: tl.tensor,
    stride_r: tl.tensor,
    stride_c: tl.tensor,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
    COUNT: tl.constexpr,
) -> None:
    """The COUNT greatest numbers of a row. WIDE is a power of two that is at least COLUMNS."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDE)
    is_column = column < COLUMNS
    number = tl.load(rows + row * stride_r + column * stride_c, mask=is_column, other=0.0)
    number = number.to(tl.float32)
    # Bits that compare like the numbers, NaN above all; then the place, the first above others.
    bits = number.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    bits = tl.where(number == number, bits, 0x7FFFFFFF)
    key = (bits.to(tl.int64) << 32) | (WIDE - 1 - column).to(tl.int64)
    least = tl.full((WIDE,), -0x8000000000000000, tl.int64)
    key = tl.where(is_column, key, least)
    for chosen in range(COUNT):
        best = tl.max(key, axis=0)
        place = WIDE - 1 - (best & 0xFFFFFFFF)
        top = (best >> 32).to(tl.int32)
        top = top ^ ((top >> 31) & 0x7FFFFFFF)
        value = top.to(tl.float32, bitcast=True)
        tl.store(values + row * COUNT + chosen, value.to(values.dtype.element_ty))
        tl.store(places + row * COUNT + chosen, place)
        key = tl.where(key == best, least, key)
