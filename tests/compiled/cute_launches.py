"""CuTe DSL kernels of many forms and their launches, compiled and launched by its own host code.

    PYTHONPATH=. python tests/compiled/cute_launches.py OUT ARCH     # sm_80 or sm_90a, one at a time

A Python with `nvidia-cutlass-dsl` and NumPy, and a C compiler. Tensors are dynamic (sizes and
strides are parameters) or static. Longer than 400 lines because it is one list of kernels.
"""

from __future__ import annotations

import sys

from cute_record import Recorder, prepared
from launch_files import Launches

LIBRARY = prepared(sys.argv[2])

import cutlass
import cutlass.cute as cute
from cutlass import Constexpr, Float32, Int32
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

# ruff: noqa: E402, E501, SIM102

KINDS = {
    "fp32": cutlass.Float32, "fp64": cutlass.Float64, "fp16": cutlass.Float16,
    "bf16": cutlass.BFloat16, "i32": cutlass.Int32, "i64": cutlass.Int64, "i8": cutlass.Int8,
    "u8": cutlass.Uint8,
}  # fmt: skip


def thread():
    return cute.arch.thread_idx()[0]


def block():
    return cute.arch.block_idx()[0]


# fmt: off
@cute.kernel
def scaled_kernel(x: cute.Tensor, y: cute.Tensor, a: Float32):
    i = block() * 64 + thread()
    if i < cute.size(x):
        y[i] = (x[i] * a).to(y.element_type)


@cute.jit
def scaled(x: cute.Tensor, y: cute.Tensor, a: Float32):
    scaled_kernel(x, y, a).launch(grid=[cute.ceil_div(cute.size(x), 64), 1, 1], block=[64, 1, 1])


@cute.kernel
def tiles_kernel(gx: cute.Tensor, gy: cute.Tensor, gz: cute.Tensor, cz: cute.Tensor, shape: cute.Shape, threads: cute.Layout, values: cute.Layout):
    at = ((None, None), block())
    load = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), gx.element_type)
    copy = cute.make_tiled_copy_tv(load, threads, values).get_slice(thread())
    x, y, z, c = copy.partition_S(gx[at]), copy.partition_S(gy[at]), copy.partition_S(gz[at]), copy.partition_S(cz[at])
    fx, fy, fz = cute.make_fragment_like(x), cute.make_fragment_like(y), cute.make_fragment_like(z)
    ok = cute.make_rmem_tensor(c.shape, cutlass.Boolean)
    for i in range(0, cute.size(ok), 1):
        ok[i] = cute.elem_less(c[i], shape)
    cute.copy(load, x, fx, pred=ok)
    cute.copy(load, y, fy, pred=ok)
    fz.store(fx.load() + fy.load())
    cute.copy(load, fz, z, pred=ok)


@cute.jit
def tiles(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, rows: Constexpr, wide: Constexpr):
    threads = cute.make_ordered_layout((4, 8), order=(1, 0))
    values = cute.make_ordered_layout((rows, wide), order=(1, 0))
    tile, tv = cute.make_layout_tv(threads, values)
    parts = [cute.zipped_divide(t, tile) for t in (x, y, z, cute.make_identity_tensor(z.shape))]
    tiles_kernel(*parts, z.shape, threads, values).launch(grid=[cute.size(parts[2], mode=[1]), 1, 1], block=[cute.size(tv, mode=[0]), 1, 1])


@cute.kernel
def wide_kernel(gx: cute.Tensor, gy: cute.Tensor):
    i = block() * 32 + thread()
    if i < cute.size(gx, mode=[1]):
        v = gx[(None, i)].load()
        gy[(None, i)].store(v * v)


@cute.jit
def wide(x: cute.Tensor, y: cute.Tensor, n: Constexpr):
    gx, gy = cute.zipped_divide(x, (n,)), cute.zipped_divide(y, (n,))
    wide_kernel(gx, gy).launch(grid=[cute.ceil_div(cute.size(gx, mode=[1]), 32), 1, 1], block=[32, 1, 1])


@cute.kernel
def transposed_kernel(x: cute.Tensor, y: cute.Tensor, way: Constexpr):
    layout = cute.make_layout((16, 16), stride=(17 if way == "padded" else 16, 1))
    if cutlass.const_expr(way == "swizzled"):
        layout = cute.make_composed_layout(cute.make_swizzle(2, 2, 4), 0, layout)
    s = SmemAllocator().allocate_tensor(x.element_type, layout, 128)
    t, (bx, by, _) = thread(), cute.arch.block_idx()
    for i in cutlass.range_constexpr(4):
        r, c = by * 16 + t // 16 + 4 * i, bx * 16 + t % 16
        if r < x.shape[0] and c < x.shape[1]:
            s[t // 16 + 4 * i, t % 16] = x[r, c]
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(4):
        r, c = bx * 16 + t // 16 + 4 * i, by * 16 + t % 16
        if r < y.shape[0] and c < y.shape[1]:
            y[r, c] = s[t % 16, t // 16 + 4 * i]


@cute.jit
def transposed(x: cute.Tensor, y: cute.Tensor, way: Constexpr):
    m, n = x.shape
    transposed_kernel(x, y, way).launch(grid=[cute.ceil_div(n, 16), cute.ceil_div(m, 16), 1], block=[64, 1, 1])


@cute.jit
def over_block(v: Float32, s: cute.Tensor, most: Constexpr):
    for i in cutlass.range_constexpr(5):
        other = cute.arch.shuffle_sync_bfly(v, offset=1 << i)
        v = cute.arch.fmax(v, other) if cutlass.const_expr(most) else v + other
    number = cute.arch.warp_idx()
    if cute.arch.lane_idx() == 0:
        s[number] = v
    cute.arch.sync_threads()
    v = s[0]
    for i in cutlass.range_constexpr(1, cute.size(s)):
        v = cute.arch.fmax(v, s[i]) if cutlass.const_expr(most) else v + s[i]
    cute.arch.sync_threads()
    return v


@cute.kernel
def softmax_kernel(x: cute.Tensor, y: cute.Tensor):
    s = SmemAllocator().allocate_tensor(Float32, cute.make_layout(2), 16)
    row, n = block(), x.shape[1]
    top = Float32(-1e30)
    for c in range(thread(), n, 64):
        top = cute.arch.fmax(top, x[row, c].to(Float32))
    top = over_block(top, s, True)
    total = Float32(0)
    for c in range(thread(), n, 64):
        total += cute.math.exp2(x[row, c].to(Float32) - top)
    total = over_block(total, s, False)
    for c in range(thread(), n, 64):
        y[row, c] = (cute.math.exp2(x[row, c].to(Float32) - top) / total).to(y.element_type)


@cute.jit
def softmax(x: cute.Tensor, y: cute.Tensor):
    softmax_kernel(x, y).launch(grid=[x.shape[0], 1, 1], block=[64, 1, 1])


@cute.kernel
def norm_kernel(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, rstd: cute.Tensor, eps: Float32):
    s = SmemAllocator().allocate_tensor(Float32, cute.make_layout(2), 16)
    row, n = block(), x.shape[1]
    total, squares = Float32(0), Float32(0)
    for c in range(thread(), n, 64):
        v = x[row, c].to(Float32)
        total += v
        squares += v * v
    mean = over_block(total, s, False) / n
    r = cute.math.rsqrt(over_block(squares, s, False) / n - mean * mean + eps)
    for c in range(thread(), n, 64):
        y[row, c] = ((x[row, c].to(Float32) - mean) * r * w[c]).to(y.element_type)
    if thread() == 0:
        rstd[row] = r


@cute.jit
def norm(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, rstd: cute.Tensor, eps: Float32):
    norm_kernel(x, w, y, rstd, eps).launch(grid=[x.shape[0], 1, 1], block=[64, 1, 1])


@cute.kernel
def scan_kernel(x: cute.Tensor, y: cute.Tensor):
    s = SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(64), 16)
    t = thread()
    row, n = block(), x.shape[1]
    carry = s.element_type(0)
    for first in range(0, n, 64):
        v = s.element_type(0)
        if first + t < n:
            v = x[row, first + t]
        s[t] = v
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(6):
            if t >= (1 << i):
                v += s[t - (1 << i)]
            cute.arch.sync_threads()
            s[t] = v
            cute.arch.sync_threads()
        if first + t < n:
            y[row, first + t] = v + carry
        carry += s[63]
        cute.arch.sync_threads()


@cute.jit
def scan(x: cute.Tensor, y: cute.Tensor):
    scan_kernel(x, y).launch(grid=[x.shape[0], 1, 1], block=[64, 1, 1])


@cute.kernel
def argmax_kernel(x: cute.Tensor, where: cute.Tensor):
    row, n, lane = block(), x.shape[1], thread()
    best, at = Float32(-1e30), Int32(0)
    for c in range(lane, n, 32):
        v = x[row, c].to(Float32)
        if v > best:
            best = v
            at = Int32(c)
    for i in cutlass.range_constexpr(5):
        v, c = cute.arch.shuffle_sync_down(best, offset=16 >> i), cute.arch.shuffle_sync_down(at, offset=16 >> i)
        if v > best:
            best = v
            at = c
    if lane == 0:
        where[row] = at


@cute.jit
def argmax(x: cute.Tensor, where: cute.Tensor):
    argmax_kernel(x, where).launch(grid=[x.shape[0], 1, 1], block=[32, 1, 1])


@cute.kernel
def gather_kernel(table: cute.Tensor, ids: cute.Tensor, y: cute.Tensor):
    at = ids[block()]
    for c in range(thread(), table.shape[1], 32):
        v = y.element_type(0)
        if at >= 0 and at < table.shape[0]:
            v = table[at, c]
        y[block(), c] = v


@cute.jit
def gather(table: cute.Tensor, ids: cute.Tensor, y: cute.Tensor):
    gather_kernel(table, ids, y).launch(grid=[cute.size(ids), 1, 1], block=[32, 1, 1])


@cute.kernel
def scatter_kernel(x: cute.Tensor, slots: cute.Tensor, pages: cute.Tensor, y: cute.Tensor):
    slot = slots[block()]
    if slot >= 0:
        page = pages[slot // 4]
        for c in range(thread(), x.shape[1], 32):
            y[(slot % 4, c, page)] = x[block(), c]


@cute.jit
def scatter(x: cute.Tensor, slots: cute.Tensor, pages: cute.Tensor, y: cute.Tensor):
    scatter_kernel(x, slots, pages, y).launch(grid=[cute.size(slots), 1, 1], block=[32, 1, 1])


@cute.kernel
def histogram_kernel(x: cute.Tensor, bins: cute.Tensor):
    s = SmemAllocator().allocate_tensor(Int32, cute.make_layout(16), 16)
    t = thread()
    if t < 16:
        s[t] = Int32(0)
    cute.arch.sync_threads()
    for i in range(block() * 64 + t, cute.size(x), 64 * cute.arch.grid_dim()[0]):
        cute.arch.atomic_add((s.iterator + (x[i] & 15)).llvm_ptr, Int32(1), scope="cta")
    cute.arch.sync_threads()
    if t < 16:
        if s[t] > 0:
            cute.arch.atomic_add((bins.iterator + t).llvm_ptr, s[t])


@cute.jit
def histogram(x: cute.Tensor, bins: cute.Tensor, ctas: Int32):
    histogram_kernel(x, bins).launch(grid=[ctas, 1, 1], block=[64, 1, 1])


@cute.kernel
def stencil_kernel(x: cute.Tensor, y: cute.Tensor):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, bz = cute.arch.block_idx()
    i, j = bx * 8 + tx, by * 4 + ty
    if i > 0 and i < x.shape[2] - 1 and j > 0 and j < x.shape[1] - 1:
        y[bz, j, i] = x[bz, j - 1, i] + x[bz, j + 1, i] + x[bz, j, i - 1] + x[bz, j, i + 1] - 4 * x[bz, j, i]


@cute.jit
def stencil(x: cute.Tensor, y: cute.Tensor):
    stencil_kernel(x, y).launch(grid=[cute.ceil_div(x.shape[2], 8), cute.ceil_div(x.shape[1], 4), x.shape[0]], block=[8, 4, 1])


@cute.kernel
def product_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, part: Int32, split: Constexpr):
    smem = SmemAllocator()
    sa = smem.allocate_tensor(a.element_type, cute.make_layout((16, 8), stride=(1, 20)), 16)
    sb = smem.allocate_tensor(b.element_type, cute.make_layout((16, 8), stride=(1, 20)), 16)
    t, (bx, by, bz) = thread(), cute.arch.block_idx()
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    mma = cute.make_tiled_mma(cute.nvgpu.MmaUniversalOp(Float32), cute.make_layout((8, 8, 1), stride=(8, 1, 0)))
    mine = mma.get_slice(t)
    gc = cute.local_tile(c, (16, 16), (by, bx))
    cc = cute.local_tile(cute.make_identity_tensor(c.shape), (16, 16), (by, bx))
    tc, tcc = mine.partition_C(gc), mine.partition_C(cc)
    ra, rb = mma.make_fragment_A(mine.partition_A(sa)), mma.make_fragment_B(mine.partition_B(sb))
    acc = mma.make_fragment_C(tc.shape)
    acc.fill(0.0)
    for first in range(bz * part, cutlass.min(k, (bz + 1) * part), 8):
        for i in cutlass.range_constexpr(2):
            r, at = t // 8 + 8 * i, t % 8
            va, vb = sa.element_type(0), sb.element_type(0)
            if by * 16 + r < m and first + at < k:
                va = a[by * 16 + r, first + at]
            if bx * 16 + r < n and first + at < k:
                vb = b[bx * 16 + r, first + at]
            sa[r, at] = va
            sb[r, at] = vb
        cute.arch.sync_threads()
        cute.autovec_copy(mine.partition_A(sa), ra)
        cute.autovec_copy(mine.partition_B(sb), rb)
        for i in cutlass.range_constexpr(8):
            cute.gemm(mma, acc, ra[None, None, i], rb[None, None, i], acc)
        cute.arch.sync_threads()
    for i in cutlass.range_constexpr(cute.size(acc)):
        if cute.elem_less(tcc[i], c.shape):
            if cutlass.const_expr(split):
                cute.arch.atomic_add((c.iterator + cute.crd2idx(tcc[i], c.layout)).llvm_ptr, acc[i])
            else:
                tc[i] = acc[i]


@cute.jit
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, part: Int32, split: Constexpr):
    m, n = c.shape
    product_kernel(a, b, c, part, split).launch(grid=[cute.ceil_div(n, 16), cute.ceil_div(m, 16), cute.ceil_div(a.shape[1], part)], block=[64, 1, 1])


@cute.kernel
def tensor_product_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, sa_layout, sb_layout, mma: cute.TiledMma, copy: cute.TiledCopy):
    smem = SmemAllocator()
    sa = smem.allocate_tensor(a.element_type, sa_layout, 128)
    sb = smem.allocate_tensor(b.element_type, sb_layout, 128)
    t, (bx, by, _) = thread(), cute.arch.block_idx()
    ga, gb = cute.local_tile(a, (32, 32), (by, None)), cute.local_tile(b, (32, 32), (bx, None))
    ca = cute.local_tile(cute.make_identity_tensor(a.shape), (32, 32), (by, None))
    cb = cute.local_tile(cute.make_identity_tensor(b.shape), (32, 32), (bx, None))
    mine, sent = mma.get_slice(t), copy.get_slice(t)
    tag, tas, tac = sent.partition_S(ga), sent.partition_D(sa), sent.partition_S(ca)
    tbg, tbs, tbc = sent.partition_S(gb), sent.partition_D(sb), sent.partition_S(cb)
    gc = cute.local_tile(c, (32, 32), (by, bx))
    cc = cute.local_tile(cute.make_identity_tensor(c.shape), (32, 32), (by, bx))
    tc, tcc = mine.partition_C(gc), mine.partition_C(cc)
    ra, rb = mma.make_fragment_A(mine.partition_A(sa)), mma.make_fragment_B(mine.partition_B(sb))
    acc = mma.make_fragment_C(tc.shape)
    acc.fill(0.0)
    load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), a.element_type)
    way_a, way_b = cute.make_tiled_copy_A(load, mma), cute.make_tiled_copy_B(load, mma)
    from_a, from_b = way_a.get_slice(t), way_b.get_slice(t)
    psa, pra = from_a.partition_S(sa), from_a.retile(ra)
    psb, prb = from_b.partition_S(sb), from_b.retile(rb)
    pa = cute.make_rmem_tensor(cute.make_layout((tas.shape[0][1], tas.shape[1], tas.shape[2])), cutlass.Boolean)
    pb = cute.make_rmem_tensor(cute.make_layout((tbs.shape[0][1], tbs.shape[1], tbs.shape[2])), cutlass.Boolean)
    for step in range(cute.size(ga, mode=[2])):
        tas.fill(0)
        tbs.fill(0)
        cute.arch.sync_threads()
        for v in cutlass.range_constexpr(pa.shape[0]):
            for i in cutlass.range_constexpr(pa.shape[1]):
                for j in cutlass.range_constexpr(pa.shape[2]):
                    pa[v, i, j] = cute.elem_less(tac[(0, v), i, j, step], a.shape)
                    pb[v, i, j] = cute.elem_less(tbc[(0, v), i, j, step], b.shape)
        cute.copy(copy, tag[None, None, None, step], tas, pred=pa)
        cute.copy(copy, tbg[None, None, None, step], tbs, pred=pb)
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(cute.size(ra, mode=[2])):
            cute.copy(way_a, psa[None, None, i], pra[None, None, i])
            cute.copy(way_b, psb[None, None, i], prb[None, None, i])
            cute.gemm(mma, acc, ra[None, None, i], rb[None, None, i], acc)
        cute.arch.sync_threads()
    for i in cutlass.range_constexpr(cute.size(acc)):
        if cute.elem_less(tcc[i], c.shape):
            tc[i] = acc[i].to(c.element_type)


@cute.jit
def tensor_product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, swizzled: Constexpr):
    plain = cute.make_layout((8, 32), stride=(32, 1))
    atom = cute.make_composed_layout(cute.make_swizzle(2, 3, 3), 0, plain) if swizzled else plain
    layout = cute.tile_to_shape(atom, (32, 32), (0, 1))
    mma = cute.make_tiled_mma(warp.MmaF16BF16Op(a.element_type, Float32, (16, 8, 16)), cute.make_layout((2, 1, 1)), permutation_mnk=(32, 16, 16))
    load = cute.make_copy_atom(cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL), a.element_type, num_bits_per_copy=128)
    copy = cute.make_tiled_copy_tv(load, cute.make_layout((16, 4), stride=(4, 1)), cute.make_layout((1, 8)))
    m, n = c.shape
    tensor_product_kernel(a, b, c, layout, layout, mma, copy).launch(grid=[cute.ceil_div(n, 32), cute.ceil_div(m, 32), 1], block=[64, 1, 1])


@cute.kernel
def boxes_kernel(load: cute.CopyAtom, gx: cute.Tensor, store: cute.CopyAtom, gy: cute.Tensor, layout, kind: Constexpr, tile: Constexpr):
    smem = SmemAllocator()
    s = smem.allocate_tensor(kind, layout.outer if cutlass.const_expr(hasattr(layout, "outer")) else layout, 1024, swizzle=layout.inner if cutlass.const_expr(hasattr(layout, "inner")) else None)
    barrier = smem.allocate_array(cutlass.Int64, 1)
    bx, by, _ = cute.arch.block_idx()
    with cute.arch.elect_one():
        cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_expect_tx(barrier, cute.size_in_bytes(kind, layout))
    cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
    tiles_x, tiles_y = cute.local_tile(gx, tile, (None, None)), cute.local_tile(gy, tile, (None, None))
    one = cute.make_layout(1)
    xs, xg = cpasync.tma_partition(load, 0, one, cute.group_modes(s, 0, 2), cute.group_modes(tiles_x, 0, 2))
    ys, yg = cpasync.tma_partition(store, 0, one, cute.group_modes(s, 0, 2), cute.group_modes(tiles_y, 0, 2))
    cute.copy(load, xg[(None, by, bx)], xs, tma_bar_ptr=barrier)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(barrier)
    cute.arch.mbarrier_wait(barrier, 0)
    cute.copy(store, ys, yg[(None, by, bx)])
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def boxes(x: cute.Tensor, y: cute.Tensor, rows: Constexpr, cols: Constexpr, swizzled: Constexpr, add: Constexpr):
    plain = cute.make_layout((rows, cols), stride=(cols, 1))
    layout = cute.make_composed_layout(cute.make_swizzle(swizzled, 4, 3), 0, plain) if swizzled else plain
    load, gx = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, (rows, cols))
    op = cpasync.CopyReduceBulkTensorTileS2GOp() if add else cpasync.CopyBulkTensorTileS2GOp()
    store, gy = cpasync.make_tiled_tma_atom(op, y, layout, (rows, cols))
    m, n = x.shape
    boxes_kernel(load, gx, store, gy, layout, x.element_type, (rows, cols)).launch(grid=[cute.ceil_div(n, cols), cute.ceil_div(m, rows), 1], block=[32, 1, 1])


def flat(run):
    for kind in ("fp32", "fp16", "bf16", "i32"):
        for dynamic in (False, True):
            for n in (1, 31, 64, 130, 200):
                run(scaled, (kind, n), (kind, n), 0.5, dynamic=dynamic)
    for kind in ("fp32", "fp16", "i8", "fp64"):
        for dynamic in (False, True):
            for m, n in ((3, 12), (16, 32), (9, 33), (33, 70), (1, 1)):
                for rows, wide_ in ((1, 1), (4, 4)) if dynamic and n % 4 else ((4, 4), (2, 8)):
                    run(tiles, *[(kind, m, n)] * 3, rows, wide_, dynamic=dynamic)
        for n in (4, 8):
            for count in (8, 104, 320):
                run(wide, (kind, count), (kind, count), n, dynamic=False)
                run(wide, (kind, count), (kind, count), n, dynamic=True, divides=8)
    for way in ("padded", "swizzled", "plain"):
        for kind in ("fp32", "i64", "fp16"):
            for m, n in ((16, 16), (33, 20), (5, 40), (1, 3)):
                run(transposed, (kind, m, n), (kind, n, m), way, dynamic=way != "plain")


def rows(run):
    for kind in ("fp32", "fp16", "bf16"):
        for m, n in ((3, 1), (2, 64), (5, 100), (1, 257), (4, 33)):
            for dynamic in (False, True):
                run(softmax, (kind, m, n), (kind, m, n), dynamic=dynamic)
                run(norm, (kind, m, n), ("fp32", n), (kind, m, n), ("fp32", m), 1e-5, dynamic=dynamic)
            run(argmax, (kind, m, n), ("i32", m))
            run(gather, (kind, 9, n), ("i32", 5, [3, -1, 8, 9, 0]), (kind, 5, n))
            run(scatter, (kind, 4, n), ("i32", 4, [13, -1, 2, 5]), ("i32", 4, [2, 0, 3, 1]), (kind, 4, n, 4))
    for kind in ("i32", "i64", "fp32"):
        for m, n in ((2, 1), (1, 64), (3, 150)):
            run(scan, (kind, m, n), (kind, m, n))
    for n in (1, 64, 300):
        for ctas in (1, 3):
            run(histogram, ("i32", n), ("i32", 16), ctas)
    for shape in ((1, 4, 8), (2, 9, 17), (3, 3, 3)):
        for dynamic in (False, True):
            run(stencil, ("fp32", *shape), ("fp32", *shape), dynamic=dynamic)


def products(run, arch):
    for m, n, k in ((16, 16, 8), (17, 33, 20), (40, 5, 9)):
        for dynamic in (False, True):
            run(product, ("fp32", m, k), ("fp32", n, k), ("fp32", m, n), k, False, dynamic=dynamic)
            run(product, ("fp32", m, k), ("fp32", n, k), ("fp32", m, n), 8, True, dynamic=dynamic)
    for kind in ("fp16", "bf16"):
        for m, n, k in ((32, 32, 32), (33, 40, 64), (70, 16, 40), (5, 100, 72)):
            for swizzled in (False, True):
                for dynamic in (False, True):
                    run(tensor_product, (kind, m, k), (kind, n, k), ("fp32", m, n), swizzled, dynamic=dynamic, divides=8)
    if arch == "sm_80":
        return
    for kind in ("fp32", "fp16", "i32"):
        for m, n in ((16, 32), (20, 40), (5, 72)):
            for tile in ((8, 32, 0), (16, 16, 0), (8, 32 if kind == "fp16" else 16, 2)):
                for add in (False, True):
                    run(boxes, (kind, m, n), (kind, m, n), *tile, add, divides=8)


def main(out, arch):
    import cutlass as c

    launches = Launches(out, f"cute_{c.__version__.replace('.', '_')}_{arch[3:]}")
    recorder = Recorder(LIBRARY, launches)
    made = {}

    def run(function, *values, dynamic=True, divides=1):
        recorder.arrays.clear()
        sent, key = [], [function.__name__, dynamic]
        for value in values:
            if not isinstance(value, tuple):
                constant = isinstance(value, (bool, str)) or function in CONSTANT
                key.append(value if constant else type(value))
                sent.append(value if constant else Int32(value) if isinstance(value, int) else Float32(value))
                continue
            kind, *shape = value
            content = shape.pop() if isinstance(shape[-1], list) else None
            tensor = from_dlpack(recorder.memory(kind, shape, content), assumed_align=16)
            tensor.element_type = KINDS[kind]
            if dynamic:
                tensor = tensor.mark_layout_dynamic(len(shape) - 1)
                if divides > 1 and shape[-1] % divides == 0:
                    tensor = tensor.mark_compact_shape_dynamic(len(shape) - 1, tuple(range(len(shape))), divides)
            key.append((kind, (len(shape), shape[-1] % divides) if dynamic else tuple(shape)))
            sent.append(tensor)
        key = tuple(key)
        if key not in made:
            try:
                made[key] = cute.compile(function, *sent)
            except Exception as error:
                launches.failed += 1
                print(key, repr(error)[:600], flush=True)
                made[key] = None
        if made[key] is not None:
            made[key](*[v for v in sent if not isinstance(v, (bool, str, int))])

    flat(run)
    rows(run)
    products(run, arch)
    launches.write()
    print(*recorder.left_out, sep="\n")


# Their numbers are constants of the kernel.
CONSTANT = (tiles, wide, boxes)

if __name__ == "__main__":
    main(*sys.argv[1:])
