"""Triton kernels of many forms and their launches, compiled as Triton's own launcher would.

    python tests/compiled/triton_launches.py OUT [ARCH...]        # a Python with Triton 3.3 or newer

A launch is what a caller writes: a grid, numbers and buffers. As the launcher does, a number that
is 1 becomes a constant, and one that 16 divides, and a pointer, are compiled as such. The file has
many kernels because what counts is that they differ; each is in the form of a known kernel.
Longer than 400 lines because it is one list of kernels.
"""

from __future__ import annotations

import sys

import triton
import triton.language as tl
from launch_files import Array, Launches, cdiv
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

# ruff: noqa: E501


# fmt: off
@triton.jit
def persistent_matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    down, across = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0)):
        group = tile // (G * across)
        high = min(down - group * G, G)
        row = group * G + (tile % (G * across)) % high
        col = (tile % (G * across)) // high
        rows = row * BM + tl.arange(0, BM)
        cols = col * BN + tl.arange(0, BN)
        acc = tl.zeros([BM, BN], tl.float32)
        for first in range(0, k, BK):
            at = first + tl.arange(0, BK)
            x = tl.load(a + rows[:, None] * k + at[None, :], mask=(rows < m)[:, None] & (at < k)[None, :], other=0.0)
            y = tl.load(b + at[:, None] * n + cols[None, :], mask=(at < k)[:, None] & (cols < n)[None, :], other=0.0)
            acc = tl.dot(x, y, acc)
        tl.store(c + rows[:, None] * n + cols[None, :], acc.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (cols < n)[None, :])


@triton.jit
def split_k(a, b, c, m, n, k, part, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)) % m
    cols = (tl.program_id(1) * BN + tl.arange(0, BN)) % n
    begin = tl.program_id(2) * part
    end = min(begin + part, k)
    acc = tl.zeros([BM, BN], tl.float32)
    for first in range(begin, end, BK):
        at = first + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + at[None, :], mask=(at < end)[None, :], other=0.0)
        y = tl.load(b + at[:, None] * n + cols[None, :], mask=(at < end)[:, None], other=0.0)
        acc += tl.dot(x, y)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.atomic_add(c + rows[:, None] * n + cols[None, :], acc, mask=(rows < m)[:, None] & (cols < n)[None, :])


@triton.jit
def grouped(pa, pb, pc, rows_of, n, k, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    last = 0
    for g in range(count):
        m = tl.load(rows_of + g)
        here = tl.cdiv(m, BM) * tl.cdiv(n, BN)
        while tile >= last and tile < last + here:
            local = tile - last
            rows = (local // tl.cdiv(n, BN)) * BM + tl.arange(0, BM)
            cols = (local % tl.cdiv(n, BN)) * BN + tl.arange(0, BN)
            a = tl.load(pa + g).to(tl.pointer_type(tl.float16))
            b = tl.load(pb + g).to(tl.pointer_type(tl.float16))
            c = tl.load(pc + g).to(tl.pointer_type(tl.float16))
            acc = tl.zeros([BM, BN], tl.float32)
            for first in range(0, k, BK):
                at = first + tl.arange(0, BK)
                x = tl.load(a + rows[:, None] * k + at[None, :], mask=(rows < m)[:, None] & (at < k)[None, :], other=0.0)
                y = tl.load(b + at[:, None] * n + cols[None, :], mask=(at < k)[:, None] & (cols < n)[None, :], other=0.0)
                acc += tl.dot(x, y)
            tl.store(c + rows[:, None] * n + cols[None, :], acc.to(tl.float16), mask=(rows < m)[:, None] & (cols < n)[None, :])
            tile += tl.num_programs(0)
        last += here


@triton.jit
def attention(q, k, v, o, lse, length, group, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    head = tl.program_id(1)
    d = tl.arange(0, D)
    q += head * length * D
    k += head // group * length * D
    v += head // group * length * D
    x = tl.load(q + rows[:, None] * D + d[None, :], mask=(rows < length)[:, None], other=0.0)
    top = tl.full([BM], -1e9, tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    end = min(length, (tl.program_id(0) + 1) * BM) if CAUSAL else length
    for first in range(0, end, BN):
        at = first + tl.arange(0, BN)
        y = tl.load(k + at[None, :] * D + d[:, None], mask=(at < length)[None, :], other=0.0)
        s = tl.where((at < length)[None, :], tl.dot(x, y) * scale, -1e9)
        if CAUSAL:
            s = tl.where(rows[:, None] >= at[None, :], s, -1e9)
        now = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - now[:, None])
        alpha = tl.exp2(top - now)
        total = total * alpha + tl.sum(p, 1)
        z = tl.load(v + at[:, None] * D + d[None, :], mask=(at < length)[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(z.dtype), z)
        top = now
    tl.store(o + head * length * D + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty), mask=(rows < length)[:, None])
    tl.store(lse + head * length + rows, top + tl.log2(total), mask=rows < length)


@triton.jit
def varlen_copy(out, x, starts, cols, BLOCK: tl.constexpr):
    begin = tl.load(starts + tl.program_id(0))
    end = tl.load(starts + tl.program_id(0) + 1)
    for row in range(begin, end):
        for first in tl.range(0, cols, BLOCK, num_stages=2):
            at = first + tl.arange(0, BLOCK)
            tl.store(out + row * cols + at, tl.load(x + row * cols + at, mask=at < cols), mask=at < cols)


@triton.jit
def chunked_scan(x, out, state, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = tl.load(state + row)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.cumsum(tl.load(x + row * n + at, mask=at < n, other=0), 0) + carry
        tl.store(out + row * n + at, v, mask=at < n)
        carry = tl.sum(tl.where(at == min(first + BLOCK, n) - 1, v, 0), 0).to(x.dtype.element_ty)
    tl.store(state + row, carry)


@triton.jit
def sort_rows(x, out, n, BLOCK: tl.constexpr, DOWN: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0)
    tl.store(out + tl.program_id(0) * n + at, tl.sort(v, descending=DOWN), mask=at < n)


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.histogram(tl.load(x + at, mask=at < n, other=0) & (BINS - 1), BINS)
    tl.atomic_add(bins + tl.arange(0, BINS), h)


@triton.jit
def tensor_copy(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr, ADD: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BM, BN])
    target = tl.make_tensor_descriptor(y, [m, n], [n, 1], [BM, BN])
    v = source.load([tl.program_id(0) * BM, tl.program_id(1) * BN])
    if ADD:
        target.atomic_add([tl.program_id(0) * BM, tl.program_id(1) * BN], v)
    else:
        target.store([tl.program_id(0) * BM, tl.program_id(1) * BN], v)


@triton.jit
def tensor_matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIAL: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    across = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * across, tl.num_programs(0), flatten=not SPECIAL):
        row, col = tile // across * BM, tile % across * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for first in tl.range(0, k, BK, warp_specialize=SPECIAL):
            acc = tl.dot(da.load([row, first]), db.load([col, first]).T, acc)
        dc.store([row, col], acc.to(c.dtype.element_ty))


@triton.jit
def block_pointers(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    p = tl.make_block_ptr(x, [m, n], [n, 1], [tl.program_id(0) * BM, 0], [BM, BN], [1, 0])
    q = tl.make_block_ptr(y, [n, m], [m, 1], [0, tl.program_id(0) * BM], [BN, BM], [1, 0])
    for _ in range(0, n, BN):
        v = tl.load(p, boundary_check=(0, 1), padding_option="zero")
        tl.store(q, tl.trans(v), boundary_check=(0, 1))
        p = tl.advance(p, [0, BN])
        q = tl.advance(q, [BN, 0])


@triton.jit
def embed(out, table, ids, rows, dim, BLOCK: tl.constexpr):
    token = tl.load(ids + tl.program_id(0))
    for first in range(0, dim, BLOCK):
        at = first + tl.arange(0, BLOCK)
        ok = (at < dim) & (token >= 0) & (token < rows)
        tl.store(out + tl.program_id(0) * dim + at, tl.load(table + token.to(tl.int64) * dim + at, mask=ok, other=0.0), mask=at < dim)


@triton.jit
def scatter_rows(cache, x, slots, dim, BLOCK: tl.constexpr):
    slot = tl.load(slots + tl.program_id(0))
    if slot >= 0:
        at = tl.arange(0, BLOCK)
        tl.store(cache + slot * dim + at, tl.load(x + tl.program_id(0) * dim + at, mask=at < dim), mask=at < dim)


@triton.jit
def paged_sum(out, cache, pages, lengths, most, dim, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    length = tl.load(lengths + b)
    d = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for i in range(tl.cdiv(length, PAGE)):
        page = tl.load(pages + b * most + i)
        at = tl.arange(0, PAGE)
        ok = (i * PAGE + at < length)[:, None] & (d < dim)[None, :]
        acc += tl.sum(tl.load(cache + (page * PAGE + at)[:, None] * dim + d[None, :], mask=ok, other=0.0).to(tl.float32), 0)
    tl.store(out + b * dim + d, acc, mask=d < dim)


@triton.jit
def norm_rope(x, w, cos, sin, heads, half, eps, BLOCK: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    ok = at < half
    p = x + (row * heads + head) * half * 2
    a = tl.load(p + at, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(p + half + at, mask=ok, other=0.0).to(tl.float32)
    r = 1 / tl.sqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / (2 * half) + eps)
    a *= r * tl.load(w + at, mask=ok)
    b *= r * tl.load(w + half + at, mask=ok)
    c, s = tl.load(cos + row * half + at, mask=ok), tl.load(sin + row * half + at, mask=ok)
    tl.store(p + at, (a * c - b * s).to(x.dtype.element_ty), mask=ok)
    tl.store(p + half + at, (b * c + a * s).to(x.dtype.element_ty), mask=ok)


@triton.jit
def causal_conv(x, w, state, out, length, dim, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    ch = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = ch < dim
    for t in range(length):
        acc = tl.zeros([BLOCK], tl.float32)
        for i in tl.static_range(WIDTH):
            back = t - (WIDTH - 1) + i
            here = tl.load(x + back * dim + ch, mask=ok & (back >= 0), other=0.0)
            old = tl.load(state + (back + WIDTH - 1) * dim + ch, mask=ok & (back < 0), other=0.0)
            acc += tl.where(back >= 0, here, old).to(tl.float32) * tl.load(w + i * dim + ch, mask=ok, other=0.0)
        tl.store(out + t * dim + ch, acc.to(out.dtype.element_ty), mask=ok)


@triton.jit
def cross_entropy(logits, labels, loss, cols, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * cols
    y = tl.load(labels + row)
    if y == ignore:
        for first in range(0, cols, BLOCK):
            at = first + tl.arange(0, BLOCK)
            tl.store(logits + at, 0.0, mask=at < cols)
        return
    top, total = -1e9, 0.0
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(logits + at, mask=at < cols, other=-1e9).to(tl.float32)
        now = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(v - now), 0)
        top = now
    picked = tl.load(logits + y).to(tl.float32)
    tl.debug_barrier()
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(logits + at, mask=at < cols, other=-1e9).to(tl.float32)
        g = tl.exp(v - top) / total - tl.where(at == y, 1.0, 0.0)
        tl.store(logits + at, g.to(logits.dtype.element_ty), mask=at < cols)
    tl.store(loss + row, top + tl.log(total) - picked)


@triton.jit
def atomics(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_min(out + at % 7, v, mask=at < n)
    tl.atomic_max(out + 8 + (at & 3), v, mask=at < n)
    tl.atomic_or(out + 16 + at % 5, v, mask=at < n, sem="relaxed")
    tl.atomic_xor(out + 24, tl.sum(v, 0), scope="cta")
    tl.atomic_and(out + 25 + (at % 3), v, mask=at < n, sem="release")
    tl.atomic_xchg(out + 32 + tl.program_id(0), tl.max(v, 0))


@triton.jit
def locked_sum(x, out, lock, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at, mask=at < n, other=0.0) + v, mask=at < n)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit(noinline=True)
def apart(x, out, first, n):
    at = first + tl.arange(0, 64)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)


@triton.jit
def calls(x, out, n, BLOCK: tl.constexpr):
    apart(x, out, tl.program_id(0) * BLOCK, n)
    if n > 50:
        apart(out, x, tl.program_id(0) * BLOCK, n - 7)


@triton.jit
def reversed_rows(x, out, m, n, stride, BM: tl.constexpr, BN: tl.constexpr):
    rows = m - 1 - (tl.program_id(0) * BM + tl.arange(0, BM))
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (rows >= 0)[:, None] & (cols < n)[None, :]
    v = tl.load(x + rows[:, None] * stride + (n - 1 - cols)[None, :], mask=ok)
    tl.store(out + (m - 1 - rows)[:, None] * n + cols[None, :], v, mask=ok)


@triton.jit
def shuffled(x, out, m, n, G: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), G)
    rows, cols = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    ok = (rows < m)[:, None] & (cols < n)[None, :]
    v = tl.load(x + rows[:, None] * n + cols[None, :], mask=ok, other=0)
    tl.store(out + cols[:, None] * m + rows[None, :], tl.trans(v), mask=(cols < n)[:, None] & (rows < m)[None, :])


@triton.jit
def joined(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=0), tl.load(y + at, mask=at < n, other=0)
    both = tl.interleave(a, b)
    wide = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    tl.store(out + wide, both, mask=wide < 2 * n)


@triton.jit
def four_bits(x, w, scale, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for first in range(0, k, BK):
        at = first + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * k + at[None, :], mask=(rows < m)[:, None] & (at < k)[None, :], other=0.0)
        packed = tl.load(w + (at // 8)[:, None] * n + cols[None, :], mask=(at < k)[:, None] & (cols < n)[None, :], other=0)
        b = ((packed >> ((at % 8) * 4)[:, None]) & 15) - 8
        s = tl.load(scale + (at // 32)[:, None] * n + cols[None, :], mask=(at < k)[:, None] & (cols < n)[None, :], other=0.0)
        acc += tl.dot(a, (b.to(tl.float32) * s).to(a.dtype))
    tl.store(out + rows[:, None] * n + cols[None, :], acc.to(out.dtype.element_ty), mask=(rows < m)[:, None] & (cols < n)[None, :])


@triton.jit
def sparse_rows(values, columns, starts, x, y, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    begin, end = tl.load(starts + row), tl.load(starts + row + 1)
    acc = tl.zeros([BLOCK], tl.float32)
    for first in range(begin, end, BLOCK):
        at = first + tl.arange(0, BLOCK)
        col = tl.load(columns + at, mask=at < end, other=0)
        acc += tl.load(values + at, mask=at < end, other=0.0) * tl.load(x + col, mask=at < end, other=0.0)
    tl.store(y + row, tl.sum(acc, 0))


@triton.jit
def quantize(x, out, scale, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    s = tl.max(tl.abs(v), 0) / 127.0 + 1e-6
    tl.store(out + tl.program_id(0) * cols + at, (v / s).to(out.dtype.element_ty), mask=at < cols)
    tl.store(scale + tl.program_id(0), s)


@triton.jit
def hints(x, out, n, stride, BLOCK: tl.constexpr):
    tl.assume(stride > 0)
    at = tl.max_contiguous(tl.multiple_of(tl.program_id(0) * BLOCK, BLOCK) + tl.arange(0, BLOCK), BLOCK)
    v = tl.load(x + at * stride, mask=at < n, eviction_policy="evict_last")
    v += tl.load(x + at * stride, mask=at < n, cache_modifier=".cg")
    tl.store(out + at, v, mask=at < n, cache_modifier=".wt")
    tl.store(out + at, v, mask=at < n, eviction_policy="evict_first")
    tl.store(out + n + at, tl.load(x + at * stride, mask=at < n, volatile=True), mask=(at < n) & (v > 0))


@triton.jit
def picked(x, index, out, BM: tl.constexpr, BN: tl.constexpr):
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    v = tl.gather(tl.load(x + at), tl.load(index + at), 1)
    tl.store(out + at, v)


@triton.jit
def best(x, where, top, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    value, place = -1e9, 0
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=-1e9).to(tl.float32)
        now, here = tl.max(v, 0, return_indices=True)
        if now > value:
            value, place = now, first + here
    tl.store(where + row, place)
    tl.store(top + row, value)


@triton.jit
def wide_offsets(x, out, n, far, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    near = (at * far) // far
    tl.store(out + (near ^ 1), tl.load(x + near, mask=near < n), mask=((near ^ 1) < n) & (near < n))


@triton.jit
def until_small(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    rounds = 0
    while tl.max(v, 0) > 3:
        v = v // 2
        rounds += 1
    tl.store(out + at, v + rounds, mask=at < n)


@triton.jit
def backward_weights(dy, x, dw, m, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, m, ROWS):
        rows = first + tl.arange(0, ROWS)
        ok = (rows < m)[:, None] & (cols < n)[None, :]
        at = rows[:, None] * n + cols[None, :]
        acc += tl.load(dy + at, mask=ok, other=0.0) * tl.load(x + at, mask=ok, other=0.0)
    tl.store(dw + cols, tl.sum(acc, 0), mask=cols < n)


@triton.jit
def dropped(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=at < n, other=0.0) / (1 - p), 0.0), mask=at < n)


@triton.jit
def in_registers(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    w = tl.inline_asm_elementwise("lop3.b32 $0, $1, 0x0f0f, 0xff, 0x6a;", "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + at, w, mask=(at < n) & (w % 2 == 0))


FLOATS = ("fp32", "fp16", "bf16")


def matmuls(run):
    sizes = ((32, 32, 32), (33, 47, 40), (17, 64, 96), (70, 16, 33))
    tiles = ((16, 16, 16), (32, 32, 32), (64, 32, 16))
    for kind in ("fp16", "bf16", "fp32"):
        for number, (m, n, k) in enumerate(sizes):
            for bm, bn, bk in tiles[number % 2 : number % 2 + 2]:
                a, b, c = (Array(kind, count) for count in (m * k, k * n, m * n))
                tile = {"BM": bm, "BN": bn, "BK": bk}
                count = cdiv(m, bm) * cdiv(n, bn)
                run(persistent_matmul, [min(count, 3)], a, b, c, m, n, k, **tile, G=2, stages=2 + number % 2)
                run(split_k, [cdiv(m, bm), cdiv(n, bn), 2], a, b, Array("fp32", m * n), m, n, k, cdiv(k, 2), **tile, stages=1 + number % 3)
                run(four_bits, [cdiv(m, bm), cdiv(n, bn)], a, Array("i32", cdiv(k, 8) * n), Array("fp32", cdiv(k, 32) * n), c, m, n, k, **tile)
    for rows in ((5, 0, 40), (16, 33), (1, 2, 3)):
        n, k = 24, 40
        arrays = {name: Array("fp16", sum(rows) * (n if name == "c" else k)) for name in "ac"}
        tables = {}
        for name in "ac":
            width, at = (n if name == "c" else k) * 2, [sum(rows[:i]) for i in range(len(rows))]
            tables[name] = Array("i64", len(rows), words={8 * i: (arrays[name], first * width) for i, first in enumerate(at)})
        shared = Array("fp16", k * n)
        tables["b"] = Array("i64", len(rows), words={8 * i: (shared, 0) for i in range(len(rows))})
        for grid in (1, 2, 5):
            run(grouped, [grid], tables["a"], tables["b"], tables["c"], Array("i32", len(rows), list(rows)), n, k, len(rows), BM=16, BN=16, BK=16)


def attentions(run):
    for kind in ("fp16", "bf16"):
        for length in (16, 33, 64):
            for d in (16, 32):
                for causal in (False, True):
                    for bm, bn in ((16, 16), (32, 16)):
                        arrays = [Array(kind, heads * length * d) for heads in (4, 2, 2, 4)]
                        run(attention, [cdiv(length, bm), 4], *arrays, Array("fp32", 4 * length), length, 2, 0.25, BM=bm, BN=bn, D=d, CAUSAL=causal, stages=1 + causal)


def tensors(run, arch):
    if arch < 90:
        return
    for kind in ("fp16", "fp32", "bf16"):
        for m, n in ((16, 32), (20, 48), (33, 64), (7, 16)):
            for bm, bn in ((16, 32), (8, 16)):
                for add in (False, True):
                    grid = [cdiv(m, bm), cdiv(n, bn)]
                    run(tensor_copy, grid, Array(kind, m * n), Array(kind, m * n), m, n, BM=bm, BN=bn, ADD=add)
    for m, n, k in ((64, 64, 32), (70, 40, 48), (128, 32, 64)):
        for special in (False, True):
            for grid in (1, 2):
                arrays = [Array("fp16", count) for count in (m * k, n * k, m * n)]
                run(tensor_matmul, [grid], *arrays, m, n, k, BM=64, BN=32, BK=32, SPECIAL=special, stages=2)


def rows(run):
    for kind in FLOATS:
        for n in (1, 16, 31, 64, 100):
            block = max(16, triton.next_power_of_2(n))
            run(varlen_copy, [3], Array(kind, 8 * n), Array(kind, 8 * n), Array("i32", 4, [0, 2, 2, 8]), n, BLOCK=32)
            run(embed, [5], Array(kind, 5 * n), Array(kind, 9 * n), Array("i32", 5, [3, -1, 8, 9, 0]), 9, n, BLOCK=32)
            run(scatter_rows, [4], Array(kind, 9 * n), Array(kind, 4 * n), Array("i64", 4, [7, -1, 2, 0]), n, BLOCK=block)
            run(norm_rope, [3, 2], Array(kind, 12 * n), Array("fp32", 2 * n), Array("fp32", 3 * n), Array("fp32", 3 * n), 2, n, 1e-5, BLOCK=block)
            run(cross_entropy, [4], Array(kind, 4 * n), Array("i64", 4, [0, -100, n - 1, n // 2]), Array("fp32", 4), n, -100, BLOCK=32)
            run(causal_conv, [cdiv(n, 32)], Array(kind, 5 * n), Array("fp32", 4 * n), Array(kind, 3 * n), Array(kind, 5 * n), 5, n, BLOCK=32, WIDTH=4)
            run(quantize, [3], Array(kind, 3 * n), Array("i8", 3 * n), Array("fp32", 3), n, BLOCK=block)
            run(best, [3], Array(kind, 3 * n), Array("i32", 3), Array("fp32", 3), n, BLOCK=32)
            run(paged_sum, [2], Array("fp32", 2 * n), Array(kind, 6 * 4 * n), Array("i32", 6, [5, 0, 3, 1, 4, 2]), Array("i32", 2, [9, 4]), 3, n, PAGE=4, BLOCK=block)
            run(reversed_rows, [2, cdiv(n, 16)], Array(kind, 6 * (n + 3)), Array(kind, 6 * n), 6, n, n + 3, BM=4, BN=16)
            run(shuffled, [2, cdiv(n, 16)], Array(kind, 13 * n), Array(kind, 13 * n), 13, n, G=2, BM=8, BN=16)
            run(block_pointers, [2], Array(kind, 13 * n), Array(kind, 13 * n), 13, n, BM=8, BN=16)
            run(backward_weights, [cdiv(n, 32)], Array(kind, 9 * n), Array(kind, 9 * n), Array("fp32", n), 9, n, BLOCK=32, ROWS=4)


def flat(run):
    for kind in ("i32", "i16", "i8", "i64"):
        for n in (1, 40, 64, 129, 256):
            block = triton.next_power_of_2(max(n, 32))
            run(chunked_scan, [2], Array(kind, 2 * n), Array(kind, 2 * n), Array(kind, 2), n, BLOCK=32)
            run(joined, [cdiv(n, 64)], Array(kind, n), Array(kind, n), Array(kind, 2 * n), n, BLOCK=64)
            run(until_small, [cdiv(n, 64)], Array(kind, n), Array(kind, n), n, BLOCK=64)
            run(hints, [cdiv(n, 64)], Array(kind, 3 * n), Array(kind, 2 * n), n, 3, BLOCK=64)
            run(hints, [cdiv(n, 64)], Array(kind, n), Array(kind, 2 * n), n, 1, BLOCK=64)
            run(wide_offsets, [cdiv(n, 64)], Array(kind, n), Array(kind, n), n, 1 << 33, BLOCK=64)
            if n <= 129:
                run(sort_rows, [2], Array(kind, 2 * n), Array(kind, 2 * n), n, BLOCK=block, DOWN=n % 2 == 0)
            if kind == "i32":
                run(histogram, [cdiv(n, 64)], Array(kind, n), Array(kind, 16), n, BLOCK=64, BINS=16)
                run(atomics, [cdiv(n, 64)], Array(kind, n), Array(kind, 40), n, BLOCK=64)
                run(in_registers, [cdiv(n, 64)], Array(kind, n), Array(kind, n), n, BLOCK=64)
    for kind in FLOATS:
        for n in (1, 40, 64, 129):
            run(dropped, [cdiv(n, 64)], Array(kind, n), Array(kind, n), n, 0.3, 17, BLOCK=64)
            run(calls, [cdiv(n, 64)], Array(kind, n), Array(kind, n), n, BLOCK=64)
    for n in (5, 16):
        run(locked_sum, [3], Array("fp32", 3 * n), Array("fp32", n), Array("i32", 1, [0]), n, BLOCK=16)
    for bm, bn in ((4, 16), (16, 32)):
        run(picked, [1], Array("fp32", bm * bn), Array("i32", bm * bn, [i * 5 % bn for i in range(bm * bn)]), Array("fp32", bm * bn), BM=bm, BN=bn)
    for starts in ([0, 3, 3, 40], [0, 64, 65, 66]):
        count = starts[-1]
        run(sparse_rows, [3], Array("fp32", count), Array("i32", count, [i * 7 % 20 for i in range(count)]), Array("i32", 4, starts), Array("fp32", 20), Array("fp32", 3), BLOCK=16)


def compiled(kernel, kinds, values, constants, arch, warps, stages):
    """PTX and facts of a kernel for arguments of some kinds; numbers specialise it."""
    names = [name for name in kernel.arg_names if name not in constants]
    signature = dict(zip(names, kinds, strict=True)) | dict.fromkeys(constants, "constexpr")
    given = dict(constants)
    attributes = {}
    for name, kind, value in zip(names, kinds, values, strict=True):
        if value == 1 and kind[0] == "i":
            signature[name], given[name] = "constexpr", 1
        elif kind[0] == "*" or (kind[0] == "i" and value % 16 == 0):
            attributes[(kernel.arg_names.index(name),)] = [["tt.divisibility", 16]]
    signature = {name: signature[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in given.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=attributes)
    built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps, "num_stages": stages})
    facts = built.metadata
    return built.asm["ptx"], {
        "kernel": facts.name,
        "threads": 32 * facts.num_warps,
        "smem": facts.shared,
        "scratch": getattr(facts, "global_scratch_size", 0),
        "left": [name for name in names if name not in given],
    }


def main(out, *architectures):
    from triton.backends.nvidia.compiler import CUDABackend

    CUDABackend.make_cubin = lambda *_: b""  # PTX is all that is needed
    for arch in [int(a) for a in architectures] or [80, 90]:
        launches = Launches(out, f"triton_{triton.__version__.replace('.', '_')}_{arch}")

        def run(kernel, grid, *values, warps=None, stages=1, launches=launches, arch=arch, **constants):
            kinds = [value.pointer if isinstance(value, Array) else ("fp32" if isinstance(value, float) else "i32" if abs(value) < 1 << 31 else "i64") for value in values]
            numbers = [None if isinstance(value, Array) else value for value in values]
            warps = warps or (4 if kernel is tensor_matmul else 1 + len(launches.rows) % 2 * 1)
            key = (kernel.fn.__name__, *kinds, *(v if v == 1 else v is not None and v % 16 == 0 for v in numbers), *constants.items(), warps, stages)
            made = launches.module(key, lambda: compiled(kernel, kinds, numbers, constants, arch, warps, stages))
            if made is None:
                return
            names = [name for name in kernel.arg_names if name not in constants]
            chosen = [value for name, value in zip(names, values, strict=True) if name in made["left"]]
            launches.add_triton(made, grid, chosen)

        matmuls(run)
        attentions(run)
        tensors(run, arch)
        rows(run)
        flat(run)
        launches.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
