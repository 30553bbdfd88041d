"""The same kinds of layers in Triton: block pointers, split k, persistent tiles, caches.

`modules()` yields (name, PTX, launch facts); `build.py` writes them. Line information is off, so
that the PTX names no folder of the machine that made it.
"""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def rope(x, cosine, sine, heads, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """In place, the two halves of every head."""
    token = tl.program_id(0)
    head = tl.program_id(1)
    d = tl.arange(0, BLOCK)
    keep = d < HALF
    row = x + (token * heads + head) * 2 * HALF + d
    c = tl.load(cosine + token * HALF + d, mask=keep)
    s = tl.load(sine + token * HALF + d, mask=keep)
    u = tl.load(row, mask=keep)
    v = tl.load(row + HALF, mask=keep)
    tl.store(row, u * c - v * s, mask=keep)
    tl.store(row + HALF, v * c + u * s, mask=keep)


@triton.jit
def rope_rows(
    out, x, cosine, sine, tokens, HEADS: tl.constexpr, HALF: tl.constexpr, BT: tl.constexpr
):
    """Out of place, several tokens at once, the last tile short."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)[:, None]
    d = tl.arange(0, HALF)[None, :]
    keep = t < tokens
    c = tl.load(cosine + t * HALF + d, mask=keep)
    s = tl.load(sine + t * HALF + d, mask=keep)
    for head in range(HEADS):
        at = (t * HEADS + head) * 2 * HALF + d
        u = tl.load(x + at, mask=keep)
        v = tl.load(x + at + HALF, mask=keep)
        tl.store(out + at, u * c - v * s, mask=keep)
        tl.store(out + at + HALF, v * c + u * s, mask=keep)


@triton.jit
def transpose_blocks(out, x, rows, cols, B: tl.constexpr):
    """Block pointers with a boundary check on both sides."""
    i, j = tl.program_id(0), tl.program_id(1)
    source = tl.make_block_ptr(x, (rows, cols), (cols, 1), (i * B, j * B), (B, B), (1, 0))
    target = tl.make_block_ptr(out, (cols, rows), (rows, 1), (j * B, i * B), (B, B), (1, 0))
    tl.store(target, tl.trans(tl.load(source, boundary_check=(0, 1))), boundary_check=(0, 1))


@triton.jit
def permute_heads(out, x, tokens, HEADS: tl.constexpr, DIM: tl.constexpr, BT: tl.constexpr):
    """[tokens, heads, dim] to [heads, tokens, dim]."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)[:, None]
    head = tl.program_id(1)
    d = tl.arange(0, DIM)[None, :]
    v = tl.load(x + (t * HEADS + head) * DIM + d, mask=t < tokens)
    tl.store(out + (head * tokens + t) * DIM + d, v, mask=t < tokens)


@triton.jit
def kv_write(kcache, vcache, k, v, position, capacity, width, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    batch = tl.program_id(1)
    d = tl.arange(0, BLOCK)
    keep = d < width
    source = (batch * tl.num_programs(0) + token) * width + d
    target = (batch * capacity + position + token) * width + d
    tl.store(kcache + target, tl.load(k + source, mask=keep), mask=keep)
    tl.store(vcache + target, tl.load(v + source, mask=keep), mask=keep)


@triton.jit
def kv_paged(cache, k, slots, width, BLOCK: tl.constexpr):
    """Where a token goes is in memory."""
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    d = tl.arange(0, BLOCK)
    keep = (d < width) & (slot >= 0)
    tl.store(cache + slot * width + d, tl.load(k + token * width + d, mask=d < width), mask=keep)


@triton.jit
def splitk_matmul(
    c,
    a,
    b,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PARTS: tl.constexpr,
    ATOMIC: tl.constexpr,
):
    tile = tl.program_id(0)
    part = tl.program_id(1)
    across = tl.cdiv(n, BN)
    rm = tile // across * BM + tl.arange(0, BM)
    rn = tile % across * BN + tl.arange(0, BN)
    rk = part * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, tl.cdiv(k, BK * PARTS)):
        at = rk + start * BK * PARTS
        left = (rm < m)[:, None] & (at < k)[None, :]
        right = (at < k)[:, None] & (rn < n)[None, :]
        ta = tl.load(a + rm[:, None] * k + at[None, :], mask=left, other=0.0)
        tb = tl.load(b + at[:, None] * n + rn[None, :], mask=right, other=0.0)
        acc = tl.dot(ta, tb, acc)
    keep = (rm < m)[:, None] & (rn < n)[None, :]
    if ATOMIC:
        tl.atomic_add(c + rm[:, None] * n + rn[None, :], acc, mask=keep)
    else:
        tl.store(c + (part * m + rm[:, None]) * n + rn[None, :], acc, mask=keep)


@triton.jit
def splitk_sum(c, work, count, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(work + part * count + i, mask=i < count, other=0.0)
    tl.store(c + i, total, mask=i < count)


@triton.jit
def persistent_matmul(
    c, a, b, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    """Tiles with the grid as stride, in a swizzled order."""
    down, across = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for tile in range(tl.program_id(0), down * across, tl.num_programs(0)):
        width = GROUP * across
        group = tile // width
        rows = min(down - group * GROUP, GROUP)
        rm = (group * GROUP + tile % width % rows) * BM + tl.arange(0, BM)
        rn = tile % width // rows * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, k, BK):
            rk = start + tl.arange(0, BK)
            left = (rm < m)[:, None] & (rk < k)[None, :]
            right = (rk < k)[:, None] & (rn < n)[None, :]
            ta = tl.load(a + rm[:, None] * k + rk[None, :], mask=left, other=0.0)
            tb = tl.load(b + rk[:, None] * n + rn[None, :], mask=right, other=0.0)
            acc = tl.dot(ta, tb, acc)
        keep = (rm < m)[:, None] & (rn < n)[None, :]
        tl.store(c + rm[:, None] * n + rn[None, :], acc.to(c.dtype.element_ty), mask=keep)


@triton.jit
def block_matmul(c, a, b, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Block pointers that advance."""
    i, j = tl.program_id(0), tl.program_id(1)
    pa = tl.make_block_ptr(a, (m, k), (k, 1), (i * BM, 0), (BM, BK), (1, 0))
    pb = tl.make_block_ptr(b, (k, n), (n, 1), (0, j * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, k, BK):
        ta = tl.load(pa, boundary_check=(0, 1), padding_option="zero")
        tb = tl.load(pb, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(ta, tb, acc)
        pa = tl.advance(pa, (0, BK))
        pb = tl.advance(pb, (BK, 0))
    pc = tl.make_block_ptr(c, (m, n), (n, 1), (i * BM, j * BN), (BM, BN), (1, 0))
    tl.store(pc, acc.to(c.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def softmax_online(out, x, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + i, mask=i < cols, other=-float("inf"))
        new = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new), 0)
        top = new
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + i, mask=i < cols)
        tl.store(out + row * cols + i, tl.exp(v - top) / total, mask=i < cols)


@triton.jit
def scan_loop(out, x, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + i, mask=i < cols, other=0.0)
        tl.store(out + row * cols + i, tl.cumsum(v, 0) + carry, mask=i < cols)
        carry += tl.sum(v, 0)


@triton.jit
def conv1d(out, x, w, tokens, channels, TAPS: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)[:, None]
    c = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    acc = tl.zeros((BT, BC), dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        at = t - TAPS + 1 + tap
        keep = (at >= 0) & (at < tokens) & (c < channels)
        weight = tl.load(w + c * TAPS + tap, mask=c < channels, other=0.0)
        acc += tl.load(x + at * channels + c, mask=keep, other=0.0) * weight
    tl.store(out + t * channels + c, acc, mask=(t < tokens) & (c < channels))


@triton.jit
def rmsnorm(out, x, gain, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + i, mask=i < cols, other=0.0)
        total += v * v
    scale = tl.rsqrt(tl.sum(total, 0) / cols + 1e-6)
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + i, mask=i < cols) * scale * tl.load(gain + i, mask=i < cols)
        tl.store(out + row * cols + i, v, mask=i < cols)


F, N = "*fp32", "i32"
TABLE = {
    "rope": (rope, [F, F, F, N], {"HALF": 20, "BLOCK": 32}, 1),
    "rope_rows": (rope_rows, [F, F, F, F, N], {"HEADS": 3, "HALF": 16, "BT": 8}, 4),
    "transpose_blocks": (transpose_blocks, [F, F, N, N], {"B": 32}, 4),
    "permute_heads": (permute_heads, ["*fp16", "*fp16", N], {"HEADS": 4, "DIM": 32, "BT": 16}, 4),
    "kv_write": (kv_write, ["*fp16"] * 4 + [N, N, N], {"BLOCK": 128}, 4),
    "kv_paged": (kv_paged, ["*fp16", "*fp16", "*i32", N], {"BLOCK": 128}, 4),
    "splitk_partial": (
        splitk_matmul,
        ["*fp32", "*fp16", "*fp16", N, N, N],
        {"BM": 32, "BN": 32, "BK": 32, "PARTS": 3, "ATOMIC": False},
        4,
    ),
    "splitk_atomic": (
        splitk_matmul,
        ["*fp32", "*fp16", "*fp16", N, N, N],
        {"BM": 32, "BN": 32, "BK": 32, "PARTS": 3, "ATOMIC": True},
        4,
    ),
    "splitk_sum": (splitk_sum, [F, F, N], {"PARTS": 3, "BLOCK": 256}, 4),
    "persistent_matmul": (
        persistent_matmul,
        ["*fp16"] * 3 + [N, N, N],
        {"BM": 32, "BN": 32, "BK": 32, "GROUP": 2},
        4,
    ),
    "block_matmul": (block_matmul, ["*fp16"] * 3 + [N, N, N], {"BM": 32, "BN": 32, "BK": 32}, 4),
    "softmax_online": (softmax_online, [F, F, N], {"BLOCK": 128}, 4),
    "scan_loop": (scan_loop, [F, F, N], {"BLOCK": 128}, 4),
    "conv1d": (conv1d, [F, F, F, N, N], {"TAPS": 4, "BT": 16, "BC": 32}, 4),
    "rmsnorm": (rmsnorm, [F, F, F, N], {"BLOCK": 128}, 4),
}


def modules():
    """Compile every kernel for sm_80."""
    for name, (kernel, types, constants, warps) in TABLE.items():
        names = [p for p in kernel.arg_names if p not in constants]
        signature = dict(zip(names, types, strict=True)) | dict.fromkeys(constants, "constexpr")
        source = ASTSource(kernel, signature, constexprs=constants)
        compiled = triton.compile(
            source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps}
        )
        facts = {
            "kernel": compiled.metadata.name,
            "smem": compiled.metadata.shared,
            "threads": 32 * warps,
        }
        yield f"triton_{name}", compiled.asm["ptx"], facts
