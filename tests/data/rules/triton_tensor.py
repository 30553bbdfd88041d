"""Triton kernels with tensor descriptors from the host, compiled to `triton_tensor_*.ptx`.

python tests/data/rules/triton_tensor.py        (triton 3.6.0; no GPU is needed)
"""

from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).resolve().parent


@triton.jit
def double(out, x, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    out.store([i * BM, j * BN], x.load([i * BM, j * BN]) * 2)


@triton.jit
def persistent(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A loop over tiles with the stride of the grid."""
    columns = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * columns, tl.num_programs(0)):
        i, j = tile // columns, tile % columns
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            total = tl.dot(a.load([i * BM, k * BK]), b.load([k * BK, j * BN]), total)
        c.store([i * BM, j * BN], total.to(tl.bfloat16))


def build(kernel, name, signature, constants):
    names = kernel.arg_names
    full = signature | dict.fromkeys(constants, "constexpr")
    positions = {(names.index(key),): value for key, value in constants.items()}
    source = ASTSource(fn=kernel, signature=full, constexprs=positions)
    options = {"num_warps": 4, "num_stages": 2}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    (HERE / f"{name}.ptx").write_text(made.asm["ptx"])


if __name__ == "__main__":
    f32 = "tensordesc<fp32[32,32]>"
    build(double, "triton_tensor_double", {"out": f32, "x": f32}, {"BM": 32, "BN": 32})
    b16 = {
        "c": "tensordesc<bf16[64,64]>",
        "a": "tensordesc<bf16[64,32]>",
        "b": "tensordesc<bf16[32,64]>",
    }
    sizes = dict.fromkeys("MNK", "i32")
    build(persistent, "triton_tensor_matmul", b16 | sizes, {"BM": 64, "BN": 64, "BK": 32})
