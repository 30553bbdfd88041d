"""Warp kernels for the corpus, compiled ahead of time to PTX: `python warp_kernels.py OUT
ARCH,...`."""

# ruff: noqa: UP018

import pathlib
import sys
import tempfile

import warp as wp


@wp.struct
class Particle:
    position: wp.vec3
    velocity: wp.vec3
    mass: float


@wp.func
def spring(a: wp.vec3, b: wp.vec3, rest: float, stiffness: float):
    d = b - a
    length = wp.length(d)
    return d * (stiffness * (length - rest) / (length + 1.0e-6))


@wp.kernel(module="unique")
def integrate(p: wp.array(dtype=Particle), dt: float):
    i = wp.tid()
    q = p[i]
    q.velocity = q.velocity + wp.vec3(0.0, -9.81, 0.0) * dt
    q.position = q.position + q.velocity * dt
    if q.position[1] < 0.0:
        q.position = wp.vec3(q.position[0], -q.position[1], q.position[2])
        q.velocity = q.velocity * -0.5
    p[i] = q


@wp.kernel(module="unique")
def springs(
    x: wp.array(dtype=wp.vec3),
    f: wp.array(dtype=wp.vec3),
    edges: wp.array(dtype=int),
    rest: wp.array(dtype=float),
):
    t = wp.tid()
    i = edges[2 * t]
    j = edges[2 * t + 1]
    force = spring(x[i], x[j], rest[t], 100.0)
    wp.atomic_add(f, i, force)
    wp.atomic_sub(f, j, force)


@wp.kernel(module="unique")
def rotate(q: wp.array(dtype=wp.quat), m: wp.array(dtype=wp.mat33), out: wp.array(dtype=wp.mat33)):
    i = wp.tid()
    r = wp.quat_to_matrix(wp.normalize(q[i]))
    out[i] = r * m[i] * wp.transpose(r) + wp.inverse(m[i]) * wp.determinant(m[i])


@wp.kernel(module="unique")
def decompose(
    m: wp.array(dtype=wp.mat33),
    u: wp.array(dtype=wp.mat33),
    s: wp.array(dtype=wp.vec3),
    v: wp.array(dtype=wp.mat33),
):
    i = wp.tid()
    a = wp.mat33()
    b = wp.vec3()
    c = wp.mat33()
    wp.svd3(m[i], a, b, c)
    u[i] = a
    s[i] = b
    v[i] = c


@wp.kernel(module="unique")
def closest(mesh: wp.uint64, p: wp.array(dtype=wp.vec3), d: wp.array(dtype=float)):
    i = wp.tid()
    query = wp.mesh_query_point(mesh, p[i], 1.0e6)
    if query.result:
        d[i] = (
            wp.length(p[i] - wp.mesh_eval_position(mesh, query.face, query.u, query.v)) * query.sign
        )


@wp.kernel(module="unique")
def neighbours(
    grid: wp.uint64, p: wp.array(dtype=wp.vec3), radius: float, rho: wp.array(dtype=float)
):
    i = wp.hash_grid_point_id(grid, wp.tid())
    total = float(0.0)
    for j in wp.hash_grid_query(grid, p[i], radius):
        d = wp.length_sq(p[i] - p[j])
        if d < radius * radius:
            total += wp.pow(radius * radius - d, 3.0)
    rho[i] = total


@wp.kernel(module="unique")
def noise(out: wp.array2d(dtype=float), seed: int):
    i, j = wp.tid()
    state = wp.rand_init(seed, i * 1024 + j)
    out[i, j] = (
        wp.noise(state, wp.vec2(float(i) * 0.1, float(j) * 0.1))
        + wp.randn(state) * 0.01
        + wp.curlnoise(state, wp.vec2(1.0, 2.0))[0]
    )


@wp.kernel(module="unique")
def tiles(
    a: wp.array2d(dtype=wp.float16),
    b: wp.array2d(dtype=wp.float16),
    c: wp.array2d(dtype=wp.float64),
):
    i, j = wp.tid()
    total = wp.float64(0.0)
    for k in range(a.shape[1]):
        total += wp.float64(a[i, k] * b[k, j])
    c[i, j] = total


KERNELS = [integrate, springs, rotate, decompose, closest, neighbours, noise, tiles]


def main(out, archs):
    """Every kernel with its adjoint, per architecture; without the NUL that ptxas refuses."""
    wp.config.quiet = True
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for kernel in KERNELS:
        for arch in archs:
            with tempfile.TemporaryDirectory() as scratch:
                wp.compile_aot_module(kernel.module, arch=arch, module_dir=scratch, use_ptx=True)
                for path in pathlib.Path(scratch).glob("*.ptx"):
                    (folder / f"{kernel.key}.sm_{arch}.ptx").write_bytes(
                        path.read_bytes().rstrip(b"\0")
                    )


if __name__ == "__main__":
    main(sys.argv[1], [int(arch) for arch in sys.argv[2].split(",")])
