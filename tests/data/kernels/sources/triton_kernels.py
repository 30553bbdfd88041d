"""Triton kernels, and the table of which are compiled how.

`modules(names)` yields (module, PTX, launch facts); `build.py` writes them. Line information is off
(`TRITON_DISABLE_LINE_INFO`), so the PTX names no folder of the machine that made it.
"""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(out, x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n
    tl.store(out + i, tl.load(x + i, mask=keep) + tl.load(y + i, mask=keep), mask=keep)


@triton.jit
def softmax(out, x, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * cols + c, e / tl.sum(e, 0), mask=c < cols)


@triton.jit
def layernorm(out, x, weight, bias, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    keep = c < cols
    v = tl.load(x + row * cols + c, mask=keep, other=0).to(tl.float32)
    mean = tl.sum(v, 0) / cols
    d = tl.where(keep, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / cols + eps)
    w = tl.load(weight + c, mask=keep).to(tl.float32)
    b = tl.load(bias + c, mask=keep).to(tl.float32)
    tl.store(out + row * cols + c, (d * scale * w + b).to(out.dtype.element_ty), mask=keep)


@triton.jit
def matmul(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    pa = a + m[:, None] * K + k[None, :]
    pb = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        keep = k + start < K
        ta = tl.load(pa, mask=keep[None, :] & (m[:, None] < M), other=0.0)
        tb = tl.load(pb, mask=keep[:, None] & (n[None, :] < N), other=0.0)
        acc = tl.dot(ta, tb, acc)
        pa += BK
        pb += BK * N
    keep = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty), mask=keep)


@triton.jit
def matmul_nt(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """B given as [N, K]: what FP8 tensor cores need."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        ta = tl.load(a + m[:, None] * K + (k + start)[None, :])
        tb = tl.load(b + n[None, :] * K + (k + start)[:, None])
        acc = tl.dot(ta, tb, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_int8(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for start in range(0, K, BK):
        ta = tl.load(a + m[:, None] * K + (k + start)[None, :])
        tb = tl.load(b + n[None, :] * K + (k + start)[:, None])
        acc = tl.dot(ta, tb, acc, out_dtype=tl.int32)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def matmul_tma(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tensor descriptors made in the kernel, so that no host call is needed."""
    da = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    db = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    dc = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(da.load([m, start]), db.load([n, start]).T, acc)
    dc.store([m, n], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_specialized(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A producer warp copies tiles, the others multiply them."""
    da = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    db = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    dc = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=True):
        acc = tl.dot(da.load([m, start]), db.load([n, start]).T, acc)
    dc.store([m, n], acc.to(c.dtype.element_ty))


@triton.jit
def copy_3d(out, x, D0, D1, D2, B0: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr):
    """Tiles that stick out of the tensor on every side but the first."""
    src = tl.make_tensor_descriptor(
        x, shape=[D0, D1, D2], strides=[D1 * D2, D2, 1], block_shape=[B0, B1, B2]
    )
    dst = tl.make_tensor_descriptor(
        out, shape=[D0, D1, D2], strides=[D1 * D2, D2, 1], block_shape=[B0, B1, B2]
    )
    at = [tl.program_id(0) * B0, tl.program_id(1) * B1, tl.program_id(2) * B2]
    tile = src.load(at)
    dst.store(at, tile * 2 + 1)


@triton.jit
def reduce_tiles(total, top, x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Every block adds its tile to one tile, and takes the maximum, through TMA reductions."""
    src = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    add = tl.make_tensor_descriptor(total, shape=[BM, BN], strides=[BN, 1], block_shape=[BM, BN])
    most = tl.make_tensor_descriptor(top, shape=[BM, BN], strides=[BN, 1], block_shape=[BM, BN])
    tile = src.load([tl.program_id(0) * BM, tl.program_id(1) * BN])
    add.atomic_add([0, 0], tile)
    most.atomic_max([0, 0], tile)


@triton.jit
def attention(
    out,
    q,
    k,
    v,
    scale,
    T,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Flash attention, forward; one program per (block of queries, head)."""
    base = tl.program_id(1) * T * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    tq = tl.load(q + base + m[:, None] * D + d[None, :], mask=m[:, None] < T, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = (tl.program_id(0) + 1) * BM if CAUSAL else T
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        tk = tl.load(k + base + n[:, None] * D + d[None, :], mask=n[:, None] < T, other=0.0)
        tv = tl.load(v + base + n[:, None] * D + d[None, :], mask=n[:, None] < T, other=0.0)
        s = tl.dot(tq, tk.T) * (scale * 1.4426950408889634)
        keep = n[None, :] < T
        if CAUSAL:
            keep = keep & (n[None, :] <= m[:, None])
        s = tl.where(keep, s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        fix = tl.exp2(top - new)
        total = total * fix + tl.sum(p, 1)
        acc = tl.dot(p.to(tv.dtype), tv, acc * fix[:, None])
        top = new
    acc = acc / total[:, None]
    tl.store(
        out + base + m[:, None] * D + d[None, :], acc.to(out.dtype.element_ty), mask=m[:, None] < T
    )


@triton.jit
def paged_decode(
    out, q, kc, vc, tables, lengths, scale, heads, max_blocks, D: tl.constexpr, PAGE: tl.constexpr
):
    """One query token per sequence; keys and values in pages found through a block table."""
    seq, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    t = tl.arange(0, PAGE)
    tq = tl.load(q + (seq * heads + head) * D + d).to(tl.float32)
    length = tl.load(lengths + seq)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros((D,), tl.float32)
    for page in range(0, tl.cdiv(length, PAGE)):
        block = tl.load(tables + seq * max_blocks + page).to(tl.int64)
        at = ((block * PAGE + t[:, None]) * heads + head) * D + d[None, :]
        keep = page * PAGE + t < length
        tk = tl.load(kc + at, mask=keep[:, None], other=0.0).to(tl.float32)
        s = tl.where(keep, tl.sum(tk * tq[None, :], 1) * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 0))
        p = tl.exp(s - new)
        fix = tl.exp(top - new)
        tv = tl.load(vc + at, mask=keep[:, None], other=0.0).to(tl.float32)
        total = total * fix + tl.sum(p, 0)
        acc = acc * fix + tl.sum(p[:, None] * tv, 0)
        top = new
    tl.store(out + (seq * heads + head) * D + d, (acc / total).to(out.dtype.element_ty))


@triton.jit
def grouped(pc, pa, pb, rows, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Expert `e` multiplies its rows by its matrix, found through arrays of pointers."""
    e = tl.program_id(2)
    M = tl.load(rows + e)
    if tl.program_id(0) * BM >= M:
        return
    a = tl.load(pa + e).to(tl.pointer_type(tl.bfloat16))
    b = tl.load(pb + e).to(tl.pointer_type(tl.bfloat16))
    c = tl.load(pc + e).to(tl.pointer_type(tl.bfloat16))
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        ta = tl.load(a + m[:, None] * K + (k + start)[None, :], mask=m[:, None] < M, other=0.0)
        tb = tl.load(b + (k + start)[:, None] * N + n[None, :])
        acc = tl.dot(ta, tb, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=m[:, None] < M)


@triton.jit
def dropout(out, x, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > p
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(keep, v / (1 - p), 0.0), mask=i < n)


@triton.jit
def scan_rows(out, x, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0)
    tl.store(out + row * cols + c, tl.cumsum(v, 0), mask=c < cols)


@triton.jit
def sort_rows(out, x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def histogram(out, x, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(out + tl.arange(0, BINS), h)


@triton.jit
def argmax_rows(where, top, x, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))
    best, at = tl.max(v, 0, return_indices=True)
    tl.store(top + row, best)
    tl.store(where + row, at)


@triton.jit
def silu_mul(out, gate, up, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + i, mask=i < n).to(tl.float32)
    u = tl.load(up + i, mask=i < n).to(tl.float32)
    tl.store(out + i, (g * tl.sigmoid(g) * u).to(tl.bfloat16), mask=i < n)


@triton.jit
def quantize(out, scale, x, cols, BLOCK: tl.constexpr):
    """Rows to FP8 with one scale per row."""
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(v), 0), 1e-6) / 448.0
    tl.store(scale + row, s)
    tl.store(out + row * cols + c, (v / s).to(tl.float8e4nv), mask=c < cols)


GEMM = {"BM": 64, "BN": 64, "BK": 32}
GEMM90 = {"BM": 64, "BN": 64, "BK": 64}
# module: (kernel, arch, signature types in order, constants, warps, stages, arguments that are
# multiples of 16 besides the pointers)
TABLE = {
    "triton_add": (add, 80, "*fp32 *fp32 *fp32 i32", {"BLOCK": 256}, 4, 1, ()),
    "triton_softmax": (softmax, 80, "*fp32 *fp32 i32", {"BLOCK": 512}, 4, 1, ()),
    "triton_layernorm_80": (
        layernorm,
        80,
        "*bf16 *bf16 *bf16 *bf16 i32 fp32",
        {"BLOCK": 512},
        4,
        1,
        (4,),
    ),
    "triton_layernorm_90": (
        layernorm,
        90,
        "*bf16 *bf16 *bf16 *bf16 i32 fp32",
        {"BLOCK": 512},
        4,
        1,
        (4,),
    ),
    "triton_matmul_bf16_80": (matmul, 80, "*bf16 *bf16 *bf16 i32 i32 i32", GEMM, 4, 3, (4, 5)),
    "triton_matmul_bf16_90": (matmul, 90, "*bf16 *bf16 *bf16 i32 i32 i32", GEMM90, 4, 3, (4, 5)),
    "triton_matmul_f16_80": (matmul, 80, "*fp16 *fp16 *fp16 i32 i32 i32", GEMM, 4, 3, (4, 5)),
    "triton_matmul_tf32_80": (matmul, 80, "*fp32 *fp32 *fp32 i32 i32 i32", GEMM, 4, 3, (4, 5)),
    "triton_matmul_tf32_90": (
        matmul_nt,
        90,
        "*fp32 *fp32 *fp32 i32 i32 i32",
        GEMM,
        4,
        3,
        (3, 4, 5),
    ),
    "triton_matmul_e5m2_80": (
        matmul_nt,
        80,
        "*fp16 *fp8e5 *fp8e5 i32 i32 i32",
        GEMM,
        4,
        3,
        (3, 4, 5),
    ),
    "triton_matmul_e4m3_90": (
        matmul_nt,
        90,
        "*bf16 *fp8e4nv *fp8e4nv i32 i32 i32",
        GEMM90,
        4,
        3,
        (3, 4, 5),
    ),
    "triton_matmul_int8_80": (matmul_int8, 80, "*i32 *i8 *i8 i32 i32 i32", GEMM, 4, 3, (3, 4, 5)),
    "triton_matmul_int8_90": (matmul_int8, 90, "*i32 *i8 *i8 i32 i32 i32", GEMM90, 4, 3, (3, 4, 5)),
    "triton_matmul_tma_90": (
        matmul_tma,
        90,
        "*bf16 *bf16 *bf16 i32 i32 i32",
        GEMM90,
        4,
        3,
        (3, 4, 5),
    ),
    "triton_matmul_special_90": (
        matmul_specialized,
        90,
        "*bf16 *bf16 *bf16 i32 i32 i32",
        GEMM90,
        4,
        3,
        (3, 4, 5),
    ),
    "triton_copy_3d_90": (
        copy_3d,
        90,
        "*fp32 *fp32 i32 i32 i32",
        {"B0": 2, "B1": 8, "B2": 16},
        4,
        1,
        (4,),
    ),
    "triton_reduce_tiles_90": (
        reduce_tiles,
        90,
        "*i32 *i32 *i32 i32 i32",
        {"BM": 8, "BN": 32},
        4,
        1,
        (3, 4),
    ),
    "triton_attention_80": (
        attention,
        80,
        "*fp16 *fp16 *fp16 *fp16 fp32 i32",
        {"D": 32, "BM": 64, "BN": 32, "CAUSAL": True},
        4,
        2,
        (),
    ),
    "triton_attention_90": (
        attention,
        90,
        "*bf16 *bf16 *bf16 *bf16 fp32 i32",
        {"D": 64, "BM": 64, "BN": 32, "CAUSAL": True},
        4,
        2,
        (),
    ),
    "triton_attention_full_90": (
        attention,
        90,
        "*fp16 *fp16 *fp16 *fp16 fp32 i32",
        {"D": 32, "BM": 64, "BN": 32, "CAUSAL": False},
        4,
        2,
        (),
    ),
    "triton_paged_decode": (
        paged_decode,
        80,
        "*fp16 *fp16 *fp16 *fp16 *i32 *i32 fp32 i32 i32",
        {"D": 32, "PAGE": 16},
        2,
        1,
        (),
    ),
    "triton_grouped_80": (
        grouped,
        80,
        "*i64 *i64 *i64 *i32 i32 i32",
        {"BM": 32, "BN": 32, "BK": 32},
        4,
        2,
        (4, 5),
    ),
    "triton_dropout": (dropout, 80, "*fp32 *fp32 i32 fp32 i32", {"BLOCK": 256}, 4, 1, ()),
    "triton_scan": (scan_rows, 80, "*i32 *i32 i32", {"BLOCK": 512}, 4, 1, ()),
    "triton_sort": (sort_rows, 80, "*i32 *i32", {"BLOCK": 64}, 2, 1, ()),
    "triton_histogram": (histogram, 80, "*i32 *i32 i32", {"BLOCK": 256, "BINS": 32}, 4, 1, ()),
    "triton_argmax": (argmax_rows, 80, "*i32 *fp32 *fp32 i32", {"BLOCK": 256}, 4, 1, ()),
    "triton_silu_mul": (silu_mul, 90, "*bf16 *bf16 *bf16 i32", {"BLOCK": 256}, 4, 1, ()),
    "triton_quantize": (quantize, 90, "*fp8e4nv *fp32 *bf16 i32", {"BLOCK": 256}, 4, 1, ()),
}


def modules(names):
    """(module, PTX, facts) for the modules named, or all; facts are what a launch needs to know."""
    for name, (kernel, arch, types, constants, warps, stages, even) in TABLE.items():
        if names and name not in names:
            continue
        types = types.split()
        signature = dict(zip(kernel.arg_names, types, strict=False))
        signature |= dict.fromkeys(constants, "constexpr")
        positions = {(kernel.arg_names.index(c),): value for c, value in constants.items()}
        aligned = [i for i, t in enumerate(types) if t.startswith("*")] + list(even)
        attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
        source = ASTSource(fn=kernel, signature=signature, constexprs=positions, attrs=attributes)
        options = {"num_warps": warps, "num_stages": stages}
        built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
        facts = {
            "kernel": built.metadata.name,
            "threads": 32 * getattr(built.metadata, "num_warps", warps),
            "smem": built.metadata.shared,
            "scratch": built.metadata.global_scratch_size,
        }
        yield name, built.asm["ptx"], facts
