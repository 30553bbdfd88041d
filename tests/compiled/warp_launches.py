"""Warp kernels, forward and adjoint, and their launches.

python tests/compiled/warp_launches.py OUT [ARCH...]
"""

from __future__ import annotations

import math
import struct
import sys
import tempfile
from pathlib import Path

import warp as wp
from launch_files import Array, Launches, cdiv

# ruff: noqa: UP018


@wp.struct
class Body:
    place: wp.vec3
    speed: wp.vec3
    mass: float


@wp.kernel(module="unique")
def scale(x: wp.array(dtype=float), y: wp.array(dtype=float), a: float):
    i = wp.tid()
    y[i] = x[i] * a + y[i]


@wp.kernel(module="unique")
def heat(now: wp.array2d(dtype=float), after: wp.array2d(dtype=float), k: float):
    i, j = wp.tid()
    if i > 0 and j > 0 and i < now.shape[0] - 1 and j < now.shape[1] - 1:
        around = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1]
        after[i, j] = now[i, j] + k * (around - 4.0 * now[i, j])


@wp.kernel(module="unique")
def bodies(b: wp.array(dtype=Body), dt: float):
    i = wp.tid()
    q = b[i]
    q.speed = q.speed + wp.vec3(0.0, -9.8, 0.0) * dt
    q.place = q.place + q.speed * dt
    if q.place[1] < 0.0:
        q.place = wp.vec3(q.place[0], -q.place[1], q.place[2])
    b[i] = q


@wp.kernel(module="unique")
def springs(x: wp.array(dtype=wp.vec3), f: wp.array(dtype=wp.vec3), ends: wp.array(dtype=int)):
    t = wp.tid()
    i, j = ends[2 * t], ends[2 * t + 1]
    d = x[j] - x[i]
    wp.atomic_add(f, i, d)
    wp.atomic_sub(f, j, d)


@wp.kernel(module="unique")
def rows(x: wp.array2d(dtype=float), sums: wp.array(dtype=float), most: wp.array(dtype=float)):
    i = wp.tid()
    total = float(0.0)
    top = float(-1.0e9)
    for j in range(x.shape[1]):
        total += x[i, j]
        top = wp.max(top, x[i, j])
    sums[i] = total
    most[i] = top


@wp.kernel(module="unique")
def product(
    a: wp.array2d(dtype=wp.float16), b: wp.array2d(dtype=wp.float16), c: wp.array2d(dtype=float)
):
    i, j = wp.tid()
    total = float(0.0)
    for k in range(a.shape[1]):
        total += float(a[i, k]) * float(b[k, j])
    c[i, j] = total


@wp.kernel(module="unique")
def matrices(m: wp.array(dtype=wp.mat33), out: wp.array(dtype=wp.mat33)):
    i = wp.tid()
    out[i] = m[i] * wp.transpose(m[i])


@wp.kernel(module="unique")
def noise(out: wp.array2d(dtype=float), seed: int):
    i, j = wp.tid()
    state = wp.rand_init(seed, i * 64 + j)
    out[i, j] = wp.randn(state)


@wp.kernel(module="unique")
def picked(x: wp.array(dtype=int), where: wp.array(dtype=int), out: wp.array(dtype=int)):
    i = wp.tid()
    k = where[i]
    if k >= 0 and k < x.shape[0]:
        out[i] = x[k]
    else:
        wp.atomic_add(out, i, 1)


@wp.kernel(module="unique")
def tile_sum(x: wp.array2d(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    t = wp.tile_load(x[i], shape=32)
    wp.tile_store(out, wp.tile_sum(t), offset=i)


def array(made, shape, width, gradient=None):
    """The argument of an array: addresses, sizes and strides."""
    sizes = [*shape, 0, 0, 0][:4]
    steps = [width * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    raw = bytes(16) + struct.pack("<4i4iHH", *sizes, *[*steps, 0, 0, 0][:4], len(shape), 0)
    words = {0: (made, 0)} | ({8: (gradient, 0)} if gradient else {})
    return raw + bytes(56 - len(raw)), words


def launches(run):
    for n in (1, 31, 64, 100, 257):
        run(scale, (n,), ("fp32", 4, n), ("fp32", 4, n), 0.5)
        run(bodies, (n,), ("fp32", 28, n), 0.1)
        run(matrices, (n,), ("fp32", 36, n), ("fp32", 36, n))
        run(picked, (n,), ("i32", 4, 50), ("i32", 4, n), ("i32", 4, n))
        run(rows, (n,), ("fp32", 4, n, 13), ("fp32", 4, n), ("fp32", 4, n))
        run(
            springs,
            (n,),
            ("fp32", 12, 20),
            ("fp32", 12, 20),
            ("i32", 4, 2 * n, [i * 7 % 20 for i in range(2 * n)]),
        )
    for m, n in ((1, 1), (5, 9), (16, 16), (33, 7)):
        run(heat, (m, n), ("fp32", 4, m, n), ("fp32", 4, m, n), 0.1)
        run(product, (m, n), ("fp16", 2, m, 11), ("fp16", 2, 11, n), ("fp32", 4, m, n))
        run(noise, (m, n), ("fp32", 4, m, n), 7)
    for rows_, cols in ((1, 32), (3, 32), (5, 40)):
        run(tile_sum, (rows_,), ("fp32", 4, rows_, cols), ("fp32", 4, rows_), tiled=True)


def main(out, *architectures):
    wp.config.quiet = True
    for arch in [int(a) for a in architectures] or [75, 90]:
        made = Launches(out, f"warp_{wp.__version__.replace('.', '_')}_{arch}")

        def run(kernel, dim, *values, tiled=False, made=made, arch=arch):
            threads = 64 if tiled else 32

            def make():
                with tempfile.TemporaryDirectory() as folder:
                    kernel.module.options["block_dim"] = threads
                    wp.compile_aot_module(kernel.module, arch=arch, module_dir=folder, use_ptx=True)
                    [path] = Path(folder).glob("*.ptx")
                    return path.read_bytes().rstrip(b"\0").decode(), {}

            facts = made.module(kernel.key, make)
            if facts is None:
                return
            count = math.prod(dim)
            bounds = struct.pack(f"<{len(dim)}I", *dim)
            bounds += bytes(-len(bounds) % 8) + struct.pack("<QQ", count, threads if tiled else 1)
            total = count * threads if tiled else count
            if tiled:
                bounds = bounds[:-16] + struct.pack("<QQ", total, threads)
            text = (made.folder / facts["ptx"]).read_text()
            for side in ("forward", "backward"):
                names = [e.split("(")[0] for e in text.split(".visible .entry ")[1:]]
                name = next((n for n in names if n.endswith(side)), None)
                if name is None:
                    continue
                sent, adjoint = [(bounds, {})], []
                for value in values:
                    if not isinstance(value, tuple):
                        sent.append(value)
                        adjoint.append(type(value)(0))
                        continue
                    kind, width, *shape = value
                    content = shape.pop() if isinstance(shape[-1], list) else None
                    words = math.prod(shape) * width // {"fp32": 4, "i32": 4, "fp16": 2}[kind]
                    gradient = Array(kind, words) if side == "backward" and kind[0] == "f" else None
                    sent.append(array(Array(kind, words, content), shape, width, gradient))
                    adjoint.append(array(gradient, shape, width) if gradient else (bytes(56), {}))
                sent += adjoint if side == "backward" else []
                for grid in {cdiv(total, threads), 1}:
                    made.add(facts["ptx"], name, [grid], [threads], sent, 0)

        launches(run)
        made.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
