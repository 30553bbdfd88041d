"""Triton kernels for the corpus, compiled to PTX without a GPU.

Run with a Python that has Triton (2 to 3.x, no torch needed): `python triton_kernels.py OUT`.
Each job is (kernel, signature, constants, options); a job that a version or an architecture
cannot compile is reported and left out.
"""

import inspect
import pathlib
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(out, x, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < cols, other=-float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + at, v / tl.sum(v, axis=0), mask=at < cols)


@triton.jit
def layer_norm(x, y, w, b, mean, rstd, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * stride + at, mask=at < n, other=0.0).to(tl.float32)
    mu = tl.sum(total, axis=0) / n
    var = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * stride + at, mask=at < n, other=0.0).to(tl.float32)
        v = tl.where(at < n, v - mu, 0.0)
        var += v * v
    r = 1 / tl.sqrt(tl.sum(var, axis=0) / n + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < n
        v = (tl.load(x + row * stride + at, mask=mask, other=0.0).to(tl.float32) - mu) * r
        v = v * tl.load(w + at, mask=mask) + tl.load(b + at, mask=mask)
        tl.store(y + row * stride + at, v, mask=mask)


@triton.jit
def matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    sa,
    sb,
    sc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    ACT: tl.constexpr,
):
    pid = tl.program_id(0)
    pm = tl.cdiv(m, BM)
    pn = tl.cdiv(n, BN)
    width = GROUP * pn
    group = pid // width
    size = min(pm - group * GROUP, GROUP)
    im = group * GROUP + (pid % size)
    jn = (pid % width) // size
    rm = (im * BM + tl.arange(0, BM)) % m
    rn = (jn * BN + tl.arange(0, BN)) % n
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * sa + rk[None, :]
    pb = b + rk[:, None] * sb + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        va = tl.load(pa, mask=rk[None, :] < k - step * BK, other=0.0)
        vb = tl.load(pb, mask=rk[:, None] < k - step * BK, other=0.0)
        acc += tl.dot(va, vb)
        pa += BK
        pb += BK * sb
    if ACT == 1:
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    cm = im * BM + tl.arange(0, BM)
    cn = jn * BN + tl.arange(0, BN)
    tl.store(
        c + cm[:, None] * sc + cn[None, :],
        acc.to(c.dtype.element_ty),
        mask=(cm[:, None] < m) & (cn[None, :] < n),
    )


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    lse,
    scale,
    heads,
    ctx,
    SEQ: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    start = tl.program_id(0)
    base = tl.program_id(1) * ctx * D
    rm = start * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    vq = tl.load(q + base + rm[:, None] * D + rd[None, :])
    m = tl.full([BM], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    end = (start + 1) * BM if CAUSAL else SEQ
    for at in range(0, end, BN):
        vk = tl.load(k + base + (at + rn)[None, :] * D + rd[:, None])
        s = tl.dot(vq, vk) * scale
        if CAUSAL:
            s = tl.where(rm[:, None] >= (at + rn)[None, :], s, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        alpha = tl.math.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        vv = tl.load(v + base + (at + rn)[:, None] * D + rd[None, :])
        acc = acc * alpha[:, None] + tl.dot(p.to(vv.dtype), vv)
        m = new
    tl.store(lse + tl.program_id(1) * ctx + rm, m + tl.math.log2(total))
    tl.store(
        out + base + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(out.dtype.element_ty)
    )


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > p
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(keep, v / (1 - p), 0.0), mask=at < n)


@triton.jit
def normal(out, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.randn(seed, at), mask=at < n)


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS)
    tl.atomic_add(bins + tl.arange(0, BINS), h)


@triton.jit
def atomics(x, lock, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.atomic_max(out + at % 32, v, mask=at < n)
    tl.atomic_xchg(lock, 0)
    tl.atomic_add(out + 32, tl.sum(v, axis=0), sem="relaxed")


@triton.jit
def combine(a, b):
    return a + b


@triton.jit
def argmax_pair(va, ia, vb, ib):
    return tl.where(va > vb, va, vb), tl.where(va > vb, ia, ib)


@triton.jit
def scan(x, y, z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(y + at, tl.associative_scan(v, 0, combine))
    tl.store(z + at, tl.cumsum(v, 0) + tl.cumprod(v, 0))
    best, where = tl.reduce((v, at), 0, argmax_pair)
    tl.store(z, best + where)


@triton.jit
def sort(x, y, BM: tl.constexpr, BN: tl.constexpr):
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(y + at, tl.sort(tl.load(x + at)))


@triton.jit
def conv2d(
    x,
    w,
    y,
    cin,
    height,
    width,
    cout,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    R: tl.constexpr,
):
    at = tl.program_id(0) * BM + tl.arange(0, BM)
    py = at // width
    px = at % width
    oc = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for r in tl.static_range(R):
        for s in tl.static_range(R):
            iy = py + r - R // 2
            ix = px + s - R // 2
            ok = (iy >= 0) & (iy < height) & (ix >= 0) & (ix < width)
            for c in range(0, cin, BK):
                ch = c + tl.arange(0, BK)
                va = tl.load(
                    x + (iy * width + ix)[:, None] * cin + ch[None, :],
                    mask=ok[:, None] & (ch < cin)[None, :],
                    other=0.0,
                )
                vb = tl.load(
                    w + ((r * R + s) * cin + ch)[:, None] * cout + oc[None, :],
                    mask=(ch < cin)[:, None],
                    other=0.0,
                )
                acc += tl.dot(va, vb)
    tl.store(
        y + at[:, None] * cout + oc[None, :],
        acc.to(y.dtype.element_ty),
        mask=(py < height)[:, None] & (oc < cout)[None, :],
    )


@triton.jit
def moe(
    x, w, y, expert, token, gate, n, k, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    pid = tl.program_id(0)
    e = tl.load(expert + pid)
    at = pid * BM + tl.arange(0, BM)
    t = tl.load(token + at)
    ok = t < count
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, k, BK):
        va = tl.load(x + t[:, None] * k + (i + rk)[None, :], mask=ok[:, None], other=0.0)
        vb = tl.load(w + e.to(tl.int64) * n * k + (i + rk)[:, None] + rn[None, :] * k)
        acc += tl.dot(va, vb)
    acc *= tl.load(gate + at, mask=ok, other=0.0)[:, None]
    tl.store(y + t[:, None] * n + rn[None, :], acc.to(y.dtype.element_ty), mask=ok[:, None])


@triton.jit
def paged(q, kc, vc, table, lens, out, scale, blocks, D: tl.constexpr, PAGE: tl.constexpr):
    seq = tl.program_id(0)
    head = tl.program_id(1)
    rd = tl.arange(0, D)
    rp = tl.arange(0, PAGE)
    vq = tl.load(q + (seq * 8 + head) * D + rd).to(tl.float32)
    m = -float("inf")
    total = 0.0
    acc = tl.zeros([D], dtype=tl.float32)
    n = tl.load(lens + seq)
    for i in range(0, tl.cdiv(n, PAGE)):
        page = tl.load(table + seq * blocks + i)
        kk = tl.load(kc + ((page * PAGE + rp)[:, None] * 8 + head) * D + rd[None, :]).to(tl.float32)
        s = tl.sum(kk * vq[None, :], 1) * scale
        s = tl.where(i * PAGE + rp < n, s, -float("inf"))
        new = tl.maximum(m, tl.max(s, 0))
        p = tl.exp(s - new)
        alpha = tl.exp(m - new)
        vv = tl.load(vc + ((page * PAGE + rp)[:, None] * 8 + head) * D + rd[None, :]).to(tl.float32)
        acc = acc * alpha + tl.sum(p[:, None] * vv, 0)
        total = total * alpha + tl.sum(p, 0)
        m = new
    tl.store(out + (seq * 8 + head) * D + rd, acc / total)


@triton.jit
def quantize(x, q, s, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(v), 0) / 448.0
    tl.store(q + at, (v / scale).to(q.dtype.element_ty), mask=at < n)
    tl.store(s + tl.program_id(0), scale)


@triton.jit
def transpose(x, y, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + i[:, None] * n + j[None, :], mask=(i < m)[:, None] & (j < n)[None, :])
    tl.store(y + j[:, None] * m + i[None, :], tl.trans(v), mask=(j < n)[:, None] & (i < m)[None, :])


@triton.jit
def cross_entropy(loss, grad, logits, target, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(target + row)
    if y == -100:
        return
    m = -float("inf")
    d = 0.0
    for i in range(0, n, BLOCK):
        at = i + tl.arange(0, BLOCK)
        v = tl.load(logits + row * stride + at, mask=at < n, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(v, 0))
        d = d * tl.exp(m - new) + tl.sum(tl.exp(v - new), 0)
        m = new
    for i in range(0, n, BLOCK):
        at = i + tl.arange(0, BLOCK)
        v = tl.load(logits + row * stride + at, mask=at < n, other=-float("inf")).to(tl.float32)
        g = tl.exp(v - m) / d - tl.where(at == y, 1.0, 0.0)
        tl.store(grad + row * stride + at, g, mask=at < n)
    tl.store(loss + row, m + tl.log(d) - tl.load(logits + row * stride + y).to(tl.float32))


@triton.jit
def tma_matmul(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr
):
    da = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BM, BK])
    db = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BN, BK])
    dc = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    i = tl.program_id(0) * BM
    j = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for s in tl.range(0, tl.cdiv(k, BK), warp_specialize=WS):
        acc = tl.dot(da.load([i, s * BK]), db.load([j, s * BK]).T, acc)
    dc.store([i, j], acc.to(tl.float16))


@triton.jit
def scaled_matmul(a, sa, b, sb, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rk = tl.arange(0, BK)
    rs = tl.arange(0, BK // 32)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, k, BK):
        va = tl.load(a + rm[:, None] * k + (i + rk)[None, :])
        vb = tl.load(b + (i + rk)[:, None] + rn[None, :] * k)
        ka = tl.load(sa + rm[:, None] * (k // 32) + (i // 32 + rs)[None, :])
        kb = tl.load(sb + rn[:, None] * (k // 32) + (i // 32 + rs)[None, :])
        acc = tl.dot_scaled(va, ka, "e4m3", vb, kb, "e4m3", acc)
    tl.store(c + rm[:, None] * BN + rn[None, :], acc)


@triton.jit
def debug(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.device_print("value", v)
    tl.device_assert(v < 1000, "too large")
    tl.store(x + at, tl.math.erf(v) + tl.sin(v), mask=at < n)


@triton.jit
def inline(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    v = tl.inline_asm_elementwise(
        "{ .reg .b32 t; add.s32 t, $1, 3; shl.b32 $0, t, 2; }",
        "=r,r",
        [v],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(x + at, v)


MM = "a:*{t} b:*{t} c:*{o} m:i32 n:i32 k:i32 sa:i32 sb:i32 sc:i32"


def jobs(arch):
    """Every (name, kernel, signature, constants, options) for one architecture."""
    for block in (128, 1024):
        yield f"add{block}", add, "x:*fp32 y:*fp32 out:*fp32 n:i32", {"BLOCK": block}, {}
    yield (
        "softmax",
        softmax,
        "out:*fp32 x:*fp32 stride:i32 cols:i32",
        {"BLOCK": 2048},
        {"num_warps": 8},
    )
    yield "softmax_bf16", softmax, "out:*bf16 x:*bf16 stride:i32 cols:i32", {"BLOCK": 512}, {}
    yield (
        "layer_norm",
        layer_norm,
        "x:*fp16 y:*fp16 w:*fp16 b:*fp16 mean:*fp32 rstd:*fp32 stride:i32 n:i32 eps:fp32",
        {"BLOCK": 1024},
        {},
    )
    for t, o, bm, bn, bk, stages in (
        ("fp16", "fp16", 128, 128, 32, 3),
        ("bf16", "fp32", 64, 64, 64, 4),
        ("fp32", "fp32", 64, 64, 32, 2),
        ("i8", "i32", 64, 64, 64, 2),
        ("fp8e5", "fp16", 128, 64, 64, 3),
        ("fp8e4nv", "fp16", 64, 128, 128, 3),
    ):
        if arch < 89 and t.startswith("fp8"):
            continue
        yield (
            f"matmul_{t}",
            matmul,
            MM.format(t=t, o=o),
            {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8, "ACT": int(t == "fp16")},
            {"num_stages": stages, "num_warps": 4 if bm * bn < 16384 else 8},
        )
    for causal in (False, True):
        yield (
            f"attention_{int(causal)}",
            attention,
            "q:*fp16 k:*fp16 v:*fp16 out:*fp16 lse:*fp32 scale:fp32 heads:i32 ctx:i32",
            {"SEQ": 1024, "D": 64, "BM": 128, "BN": 64, "CAUSAL": causal},
            {"num_stages": 3},
        )
    yield "dropout", dropout, "x:*fp32 out:*fp32 n:i32 p:fp32 seed:i32", {"BLOCK": 256}, {}
    yield "normal", normal, "out:*fp32 n:i32 seed:i64", {"BLOCK": 512}, {}
    yield "histogram", histogram, "x:*i32 bins:*i32 n:i32", {"BLOCK": 1024, "BINS": 64}, {}
    yield "atomics", atomics, "x:*i32 lock:*i32 out:*i32 n:i32", {"BLOCK": 128}, {}
    yield "scan", scan, "x:*fp32 y:*fp32 z:*fp32", {"BLOCK": 512}, {}
    yield "sort", sort, "x:*fp32 y:*fp32", {"BM": 4, "BN": 64}, {}
    yield (
        "conv2d",
        conv2d,
        "x:*fp16 w:*fp16 y:*fp16 cin:i32 height:i32 width:i32 cout:i32",
        {"BM": 64, "BN": 64, "BK": 32, "R": 3},
        {},
    )
    yield (
        "moe",
        moe,
        "x:*bf16 w:*bf16 y:*bf16 expert:*i32 token:*i32 gate:*fp32 n:i32 k:i32 count:i32",
        {"BM": 32, "BN": 64, "BK": 64},
        {},
    )
    yield (
        "paged",
        paged,
        "q:*fp16 kc:*fp16 vc:*fp16 table:*i32 lens:*i32 out:*fp32 scale:fp32 blocks:i32",
        {"D": 128, "PAGE": 16},
        {},
    )
    yield "transpose", transpose, "x:*fp32 y:*fp32 m:i32 n:i32", {"B": 64}, {}
    yield (
        "cross_entropy",
        cross_entropy,
        "loss:*fp32 grad:*fp16 logits:*fp16 target:*i64 stride:i32 n:i32",
        {"BLOCK": 4096},
        {"num_warps": 16},
    )
    if arch >= 89:
        yield "quantize", quantize, "x:*bf16 q:*fp8e4nv s:*fp32 n:i32", {"BLOCK": 1024}, {}
    if arch >= 90 and hasattr(tl, "make_tensor_descriptor"):
        for ws in (False, True):
            yield (
                f"tma_matmul_{int(ws)}",
                tma_matmul,
                "a:*fp16 b:*fp16 c:*fp16 m:i32 n:i32 k:i32",
                {"BM": 128, "BN": 128, "BK": 64, "WS": ws},
                {"num_stages": 3},
            )
    if arch >= 100 and hasattr(tl, "dot_scaled"):
        yield (
            "scaled_matmul",
            scaled_matmul,
            "a:*fp8e4nv sa:*u8 b:*fp8e4nv sb:*u8 c:*fp32 k:i32",
            {"BM": 128, "BN": 128, "BK": 128},
            {"num_stages": 2},
        )
    yield "debug", debug, "x:*fp32 n:i32", {"BLOCK": 128}, {"debug": True}
    yield "inline", inline, "x:*i32", {"BLOCK": 256}, {}


def compile_one(kernel, signature, constants, options, arch):
    """The PTX of one job, through whichever form of ASTSource this version has."""
    types = dict(part.split(":") for part in signature.split())
    names = inspect.signature(ASTSource.__init__).parameters
    if "constexprs" in names:
        types.update(dict.fromkeys(constants, "constexpr"))
        source = ASTSource(kernel, types, constexprs=constants)
    else:
        if triton.__version__.startswith("3.0"):
            types = {kernel.arg_names.index(k): v for k, v in types.items()}
            constants = {kernel.arg_names.index(k): v for k, v in constants.items()}
        source = ASTSource(kernel, types, constants=constants)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm["ptx"]


def main(out, archs):
    """Compile every job for every architecture into `out`."""
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for arch in archs:
        for name, kernel, signature, constants, options in jobs(arch):
            path = folder / f"{name}.sm_{arch}.ptx"
            if path.exists():
                continue
            try:
                path.write_text(compile_one(kernel, signature, constants, options, arch))
            except Exception as failure:
                print(f"left out {path.name}: {str(failure).strip().splitlines()[-1:]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [int(arch) for arch in sys.argv[2].split(",")])
