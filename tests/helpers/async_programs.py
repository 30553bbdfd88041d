"""Kernels of Hopper: clusters, tensor maps and warpgroups, with random arithmetic round them.

In: a seed. Out: a `Hopper`: a PTX module whose kernel `k` reads `x` and writes `out`, of
`memory_programs.SIZE` bytes each, its launch, and the tensor maps that it takes by value.
`st.async` and `red.async` run in clusters only: outside of one, an H200 ends a kernel that ptxas
makes the same code of with an illegal instruction.
"""

# ruff: noqa: E501

from __future__ import annotations

import random
from dataclasses import dataclass

from tessera.ir.program.tensor_map import encode_tiled
from tests.helpers.memory_programs import module_around

# fmt: off
_WAIT = "\nAGAIN:\n  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%m], 0;\n  @!%p0 bra AGAIN;\n"
_MEET = "  barrier.cluster.arrive; barrier.cluster.wait;\n"
_ATOMIC = {
    "add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"), "inc": ("u32",),
    "dec": ("u32",), "and": ("b32",), "or": ("b32",), "xor": ("b32",),
}
_CODES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
_BYTES = {"u8": 1, "u16": 2, "f16": 2, "bf16": 2, "u64": 8, "s64": 8, "f64": 8}
_REDUCED = {
    "add": ("u32", "s32", "u64", "f32", "f16", "bf16"), "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"), "inc": ("u32",), "dec": ("u32",),
    "and": ("u32", "u64"), "or": ("u32", "u64"), "xor": ("s32", "u64"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hopper:
    """A module and its launch; `maps` are tensor maps of a buffer, from a byte on."""

    text: str
    threads: int
    ctas: int = 1
    maps: tuple[tuple[bytes, int, int], ...] = ()


def _cluster(rng: random.Random) -> Hopper:
    """Two CTAs that write to, or wait for, each other."""
    own = rng.random() < 0.25
    kind = rng.choice(("st.async", "st.async", "red.async", "red.async", "copy", "reduce", "multicast", "arrive", "direct"))
    threads, bytes_in, arrivals = rng.choice((1, 7, 32, 64)), 0, 1
    fill = "  shl.b32 %r1, %i, 4; add.u32 %r1, %r1, %s; mov.u32 %r4, 9; st.shared.v4.b32 [%r1], {%i, %r4, %i, %r4}; fence.proxy.async.shared::cta;"
    body = ""
    if kind == "st.async":
        name = rng.choice(("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"))
        vector = rng.choice(("", "v2.", "v4.")) if "64" not in name else rng.choice(("", "v2."))
        letter = {"32": "r", "64": "d"}[name[1:]] if name[0] != "f" else {"f32": "f", "f64": "e"}[name]
        lanes = int(vector[1] if vector else 1)
        values = ", ".join(f"%v{letter}{i}" for i in range(lanes))
        bytes_in = lanes * int(name[1:]) // 8
        sets = " ".join(f"mov.b{name[1:]} %v{letter}{i}, {_immediate(rng, name)};" for i in range(lanes))
        weak = rng.choice(("", ".weak"))
        body = (
            f"  .reg .b32 %vr<4>; .reg .b64 %vd<4>; .reg .f32 %vf<4>; .reg .f64 %ve<4>; {sets}\n"
            f"  mad.lo.u32 %r1, %i, {bytes_in}, %ps;\n"
            f"  st.async{weak}.shared::cluster.mbarrier::complete_tx::bytes.{vector}{name} [%r1], {'{' + values + '}' if vector else values}, [%pm];"
        )
        bytes_in *= threads
    elif kind == "red.async":
        operation = rng.choice(list(_ATOMIC))
        name = rng.choice(_ATOMIC[operation])
        bytes_in = int(name[1:]) // 8
        value = "%a" if bytes_in == 8 else "%r3"
        place = rng.choice(("mad.lo.u32 %r1, %i, 16, %ps", "and.b32 %r1, %i, 3; mad.lo.u32 %r1, %r1, 16, %ps"))
        body = (
            f"  {place}; mov.u32 %r3, {rng.randrange(1, 99)}; cvt.u64.u32 %a, %r3;\n"
            f"  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation}.{name} [%r1], {value}, [%pm];"
        )
        bytes_in *= threads
    elif kind in ("copy", "reduce"):
        threads = 64
        operation = rng.choice(list(_ATOMIC))
        reduce = f".{operation}.{rng.choice(_ATOMIC[operation])}" if kind == "reduce" else ""
        bytes_in = rng.choice((16, 64, 128))
        body = (
            "  @%p1 bra SENT;\n"
            "  add.u32 %r1, %ps, 512;\n"
            f"  cp{'.reduce' if reduce else ''}.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{reduce} [%r1], [%s], {bytes_in}, [%pm];\nSENT:"
        )
    elif kind == "multicast":
        bytes_in = rng.choice((16, 48, 256))
        body = (
            "  mov.u32 %r1, %cluster_ctarank; setp.ne.or.u32 %p2, %r1, 0, %p1; @%p2 bra SENT;\n  mov.b16 %h0, 3;\n"
            f"  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%s], [%x+{16 * rng.randrange(64)}], {bytes_in}, [%m], %h0;\nSENT:"
        )
    elif kind == "arrive":
        arrivals = 2
        drop = rng.choice(("arrive", "arrive_drop"))
        expect = rng.random() < 0.5
        remote = f"mbarrier.{drop}.expect_tx.release.cluster.shared::cluster.b64 _, [%pm], 4;" if expect else f"mbarrier.{drop}.release.cluster.shared::cluster.b64 _, [%pm];"
        body = f"  @%p1 bra SENT;\n  {remote}\n" + ("  st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%ps], %i, [%pm];\n" if expect else "") + "SENT:"
    else:
        way = rng.choice(("st", "ld", "atom", "red"))
        place = "  mad.lo.u32 %r1, %i, 16, %ps;"
        body = place + {
            "st": " st.shared::cluster.b32 [%r1+8], %i;",
            "ld": " ld.shared::cluster.v2.b32 {%r2, %r3}, [%r1]; xor.b32 %r2, %r2, %r3;",
            "atom": " atom.relaxed.cluster.shared::cluster.add.u32 %r2, [%r1], 5;",
            "red": " red.relaxed.cluster.shared::cluster.max.s32 [%r1], 77;",
        }[way] + "\n" + _MEET
    turn = "" if own and kind != "arrive" else " xor.b32 %peer, %peer, 1;"
    start = (
        f"  .reg .b32 %peer, %ps, %pm, %rank; mov.u32 %rank, %cluster_ctarank; mov.u32 %peer, %rank;{turn}\n"
        "  mapa.shared::cluster.u32 %ps, %s, %peer; mapa.shared::cluster.u32 %pm, %m, %peer;\n"
        f"{fill}\n  setp.ne.u32 %p1, %i, 0;\n  @%p1 bra READY;\n"
        f"  mbarrier.init.shared::cta.b64 [%m], {arrivals};\n"
        f"  mbarrier.arrive.expect_tx.shared::cta.b64 %t, [%m], {bytes_in};\n"
        "  fence.mbarrier_init.release.cluster;\nREADY:\n"
    )
    after = "  shl.b32 %r1, %i, 2; add.u32 %r1, %r1, %s; ld.shared.b32 %r3, [%r1]; ld.shared.b32 %r4, [%r1+512]; add.u32 %r2, %r2, %r3; xor.b32 %r2, %r2, %r4;\n"
    if kind not in ("copy", "reduce"):
        after = after.replace("ld.shared.b32 %r4, [%r1+512]", "mov.u32 %r4, %rank")
    text = module_around(rng, start + _MEET + body + _WAIT.replace("parity", "parity.acquire.cluster") + after + _MEET, ctas=True)
    head, brace, rest = text.partition("\n{\n")
    return Hopper(text=f"{head}\n.reqnctapercluster 2, 1, 1{brace}{rest}", threads=threads, ctas=rng.choice((2, 4)))


def _immediate(rng: random.Random, name: str) -> str:
    return {"f32": "0f3FC00000", "f64": "0d3FF8000000000000"}.get(name, str(rng.randrange(1, 999)))


def _tensor(rng: random.Random) -> Hopper:
    """A box of a tensor is loaded, stored, reduced or fetched ahead, by a map that is given or made."""
    kind = rng.choice(("load", "load", "store", "store", "reduce", "reduce", "prefetch", "made", "made", "replace"))
    operation = rng.choice(list(_REDUCED))
    element = rng.choice(_REDUCED[operation] if kind == "reduce" else list(_CODES))
    width = _BYTES.get(element, 4)
    rank = rng.choice((1, 2, 2, 3, 4, 5))
    box = [rng.choice([n for n in (2, 4, 8, 16, 32) if n * width % 16 == 0 and n * width <= 128])]
    while len(box) < rank:
        box.append(rng.choice((1, 2, 3, 4)))
    while _product(box) * width > 1024:
        box[box.index(max(box[1:]), 1)] = 1
    dims, strides, size = [rng.randint(1, 128 // width)], list[int](), 0
    size = -(-dims[0] * width // 16) * 16
    for _ in range(1, rank):
        strides.append(size)
        dims.append(rng.randint(1, max(1, min(6, 1536 // size))))
        size *= dims[-1]
    # An H200 ends a kernel whose first coordinate is within a piece of 16 bytes, or that stores at
    # a coordinate below 0, with an illegal instruction.
    least = [0 if kind in ("store", "reduce") else -size for size in box]
    places = [rng.choice((0, 0, rng.randint(least[a], dims[a]))) for a in range(rank)]
    places[0] -= places[0] % (16 // width)
    # An H200 ends a kernel that swizzles narrow boxes of four dimensions, partly outside, with an
    # illegal address.
    swizzle = rng.choice((0, 0, 1, 2, 3)) if box[0] * width <= 32 and rank < 4 else 0
    count = _product(box) * width
    threads = 32 if kind == "made" else rng.choice((32, 64))
    head = (
        "  .shared .align 1024 .b8 w[2048]; .reg .b32 %w, %c<5>; .reg .b64 %map; mov.u32 %w, w; setp.ne.u32 %p1, %i, 0;\n"
        + " ".join(f"mov.u32 %c{a}, {places[a]};" for a in range(rank))
        + "\n  mov.b64 %map, given; cvta.param.u64 %map, %map;\n"
    )
    box_at = f"[%map, {{{', '.join(f'%c{a}' for a in range(rank))}}}]"
    filled = "  mad.lo.u32 %r1, %i, 16, %w; mov.u32 %r3, 7; st.shared.v4.b32 [%r1], {%i, %r3, %i, %r3}; st.shared.v4.b32 [%r1+1024], {%r3, %i, %r3, %i};\n  fence.proxy.async.shared::cta; bar.sync 0;\n  @%p1 bra SENT;\n"
    sent = "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\nSENT:\n  bar.sync 0;\n"
    read = "  mad.lo.u32 %r1, %i, 4, %w; ld.shared.b32 %r2, [%r1];\n"
    load = (
        f"  @%p1 bra SENT;\n  mbarrier.init.shared::cta.b64 [%m], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;\n  mbarrier.arrive.expect_tx.shared::cta.b64 %t, [%m], {count};\n"
        f"  cp.async.bulk.tensor.{rank}d.shared::cluster.global{rng.choice(('', '.tile'))}.mbarrier::complete_tx::bytes [%w], {box_at}, [%m];\nSENT:\n  bar.sync 0;\n"
    ) + _WAIT + (read if count >= 4 * threads else "")
    into = int(kind in ("store", "reduce"))
    if kind == "load":
        body = load
    elif kind == "store":
        body = filled + f"  cp.async.bulk.tensor.{rank}d.global.shared::cta{rng.choice(('', '.tile'))}.bulk_group {box_at}, [%w];\n" + sent
    elif kind == "reduce":
        body = filled + f"  cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}{rng.choice(('', '.tile'))}.bulk_group {box_at}, [%w];\n" + sent
    elif kind == "prefetch":
        body = f"  @%p1 bra SENT;\n  cp.async.bulk.prefetch.tensor.{rank}d.L2.global{rng.choice(('', '.tile'))} {box_at};\nSENT:\n"
    elif kind == "replace":
        field = rng.choice(("rank.{}.b1024.b32 {}, 1", "box_dim.{}.b1024.b32 {}, 0, %i", "global_address.{}.b1024.b64 {}, %x", "global_dim.{}.b1024.b32 {}, 1, %i", "fill_mode.{}.b1024.b32 {}, 1"))
        body = f"  @%p1 bra SENT;\n  tensormap.replace.tile.{field.format('global', '[%out+1920]')};\nSENT:\n"
    else:
        body = _made(rank, element, dims, strides, box, swizzle) + load.replace(box_at, box_at.replace("%map", "%place"))
    content = encode_tiled(data_type=_CODES[element], address=0, dims=dims, strides=strides, box=box, swizzle=swizzle)
    start = 16 * rng.randrange(16)
    text = module_around(rng, head + body).replace(".param .u64 pout)", ".param .u64 pout, .param .align 64 .b8 given[128])")
    return Hopper(text=text, threads=threads, maps=((content, into, start),))


def _made(rank: int, element: str, dims: list[int], strides: list[int], box: list[int], swizzle: int) -> str:
    """A map that the warp makes in shared memory and copies to the end of `out`, at `%place`."""
    fields = ["global_address.{}.b1024.b64 {}, %x", f"rank.{{}}.b1024.b32 {{}}, {rank - 1}"]
    for axis in range(rank):
        fields += [f"box_dim.{{}}.b1024.b32 {{}}, {axis}, {box[axis]}", f"global_dim.{{}}.b1024.b32 {{}}, {axis}, {dims[axis]}", f"element_stride.{{}}.b1024.b32 {{}}, {axis}, 1"]
    fields += [f"global_stride.{{}}.b1024.b64 {{}}, {axis}, {stride}" for axis, stride in enumerate(strides)]
    fields += [f"elemtype.{{}}.b1024.b32 {{}}, {_CODES[element] + (element in ('f64', 'bf16'))}", "interleave_layout.{}.b1024.b32 {}, 0", f"swizzle_mode.{{}}.b1024.b32 {{}}, {swizzle}", "fill_mode.{}.b1024.b32 {}, 0"]
    lines = "\n".join(f"  @!%p1 tensormap.replace.tile.{field.format('shared::cta', '[%tm]')};" for field in fields)
    return (
        "  .shared .align 128 .b8 tm[128]; .reg .b64 %tm, %place, %zero; .reg .b32 %tw;\n"
        "  mov.u32 %tw, tm; cvt.u64.u32 %tm, %tw; add.s64 %place, %out, 1920; mov.u32 %r3, 0;\n"
        "  mad.lo.u32 %r1, %i, 4, %tw; st.shared.b32 [%r1], %r3;\n  bar.warp.sync -1;\n"
        f"{lines}\n"
        "  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%place], [%tm], 128;\n"
        "  fence.proxy.tensormap::generic.acquire.gpu [%place], 128;\n  bar.sync 0;\n"
    )


def _product(numbers: list[int]) -> int:
    found = 1
    for number in numbers:
        found *= number
    return found


def _warpgroup(rng: random.Random) -> Hopper:
    """A product of two matrices in shared memory, or one of them in registers, by a warpgroup."""
    kind, result = rng.choice((("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32"), ("s8", "s32"), ("u8", "s32"), ("e4m3", "f32"), ("e5m2", "f16")))
    n, depth = rng.choice((8, 16, 24, 32)), {"f16": 16, "bf16": 16, "tf32": 8}.get(kind, 32)
    count = n // 4 if result == "f16" else n // 2
    held = rng.random() < 0.3
    scales = "" if result == "s32" else f", {rng.choice((1, -1))}, {rng.choice((1, -1))}"
    scales += (", 0" if held else ", 0, 0") if depth == 16 else ""
    into = ", ".join(f"%d{i}" for i in range(count))
    body = (
        f"  .shared .align 1024 .b8 w[8192]; .reg .b32 %w, %v, %d<{count}>, %a<4>; .reg .b64 %da, %db; mov.u32 %w, w;\n"
        "  mad.lo.u32 %r1, %i, 4, %w;\n"
        + "".join(f"  mad.lo.u32 %v, %i, {rng.randrange(1, 999)}, {rng.randrange(999)}; st.shared.b32 [%r1+{512 * j}], %v;\n" for j in range(16))
        + "".join(f"  mov.b32 %d{i}, {rng.choice((0, 1))};\n" for i in range(count))
        + "".join(f"  add.u32 %a{i}, %i, {i};\n" for i in range(4))
        + "  fence.proxy.async.shared::cta; bar.sync 0;\n"
        "  shr.u32 %v, %w, 4; cvt.u64.u32 %da, %v; add.s64 %db, %da, 128;\n"
        f"  add.s64 %da, %da, {128 >> 4 << 16 | 256 >> 4 << 32}; add.s64 %db, %db, {128 >> 4 << 16 | 256 >> 4 << 32};\n"
        f"  setp.{rng.choice(('eq', 'ne'))}.u32 %p1, %w, 0;\n  wgmma.fence.sync.aligned;\n"
        + f"  wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{result}.{kind}.{kind} {{{into}}}, {'{%a0, %a1, %a2, %a3}' if held else '%da'}, %db, %p1{scales};\n" * rng.choice((1, 2))
        + "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
        + "".join(f"  xor.b32 %r2, %r2, %d{i};\n" for i in range(count))
    )
    return Hopper(text=module_around(rng, body), threads=128)


PARTS = {"cluster": _cluster, "tensor": _tensor, "warpgroup": _warpgroup}


def async_program(part: str, seed: int) -> Hopper:
    """The kernel of a seed."""
    return PARTS[part](random.Random(f"{part} {seed}"))
