"""Work of recorded Triton kernels at real shapes: what is counted is what the arithmetic says.

The kernels are `benchmarks/kernels/triton_arch.py` compiled for sm_80, sm_89, sm_90a and sm_100a.
"""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path

import pytest

from tessera.diagnostics import Source
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Launch, LaunchId, ModuleId, Pointer, Scalar
from tessera.ir.ptx import syntax as ptx
from tessera.planning.prices import count_work as counting
from tessera.planning.prices.count_work import count_work

ARCHIVE = Path(__file__).parents[2] / "data" / "triton" / "kernels.tar.xz"
ARCHITECTURES = (80, 89, 90, 100)


@cache
def texts() -> dict[str, str]:
    with tarfile.open(ARCHIVE) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read().decode()
        return found


@cache
def module(name: str) -> ptx.Module:
    return parse_source(Source(name, texts()[name]))


def work(name: str, grid: tuple[int, int, int], pointers: int, *sizes: int) -> LaunchWork:
    about = json.loads(texts()["index.json"])[name]
    numbers = [Scalar(DataType.S32, size) for size in sizes]
    if pointers == 4:
        numbers.append(Scalar(DataType.F32, 0))
    launch = Launch(
        id=LaunchId(0),
        module=ModuleId(0),
        kernel=about["kernel"],
        grid=grid,
        block=(about["threads"], 1, 1),
        arguments=(*(Pointer(n, 0) for n in range(pointers)), *numbers),
        shared_bytes=about["shared"],
    )
    found = count_work(module(name), launch)
    assert found is not None
    return found


def up(a: int, b: int) -> int:
    return -(-a // b)


def gemm(name: str, m: int, n: int, k: int) -> tuple[LaunchWork, float]:
    """The work, and the operations of the tiles that cover the product."""
    size = json.loads(texts()["index.json"])[name]["constants"]
    down, across = up(m, size["BM"]), up(n, size["BN"])
    grid = (down * across, 1, 1) if name.startswith("grouped") else (down, across, 1)
    exact = 2.0 * down * size["BM"] * across * size["BN"] * up(k, size["BK"]) * size["BK"]
    return work(name, grid, 3, m, n, k), exact


def flash(name: str, length: int, heads: int) -> tuple[LaunchWork, float]:
    size = json.loads(texts()["index.json"])[name]["constants"]
    rows, columns, width = size["BM"], size["BN"], size["D"]
    blocks = up(length, rows)
    tiles = sum(up(min((n + 1) * rows, length), columns) for n in range(blocks))
    exact = 4.0 * tiles * heads * rows * columns * width
    return work(name, (blocks, heads, 1), 4, length, 4), exact


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        ("gemm16", (1, 4096, 4096)),
        ("gemm64", (1000, 1111, 1616)),
        ("gemm128", (4096, 4096, 16384)),
        ("gemm128", (4096, 4096, 28672)),
        ("grouped", (2000, 6144, 4096)),
    ],
)
def test_products(arch: int, kernel: str, shape: tuple[int, int, int]) -> None:
    found, exact = gemm(f"{kernel}_sm{arch}.ptx", *shape)
    assert dict(found.units)["bf16"] == pytest.approx(exact, rel=0.001)
    assert found.sure
    m, n, k = shape
    size = json.loads(texts()["index.json"])[f"{kernel}_sm{arch}.ptx"]["constants"]
    tiles = up(m, size["BM"]) * up(n, size["BN"])
    loaded = 2.0 * tiles * k * (size["BM"] + size["BN"])
    assert found.asked_bytes == pytest.approx(loaded + 2.0 * m * n, rel=0.03)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", ["flash64", "flash128"])
def test_causal_attention_is_quadratic(arch: int, kernel: str) -> None:
    name = f"{kernel}_sm{arch}.ptx"
    found = {length: flash(name, length, 32) for length in (100, 4096, 65536)}
    for made, exact in found.values():
        assert dict(made.units)["bf16"] == pytest.approx(exact, rel=0.01)
        assert made.sure
    short, long = (dict(found[length][0].units)["bf16"] for length in (4096, 65536))
    assert long / short == pytest.approx(256, rel=0.03)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_decode_attention_in_parts_of_unlike_length(arch: int) -> None:
    length, part, heads, batch = 33000, 2048, 8, 16
    made = work(f"decode_sm{arch}.ptx", (heads, batch, up(length, part)), 4, length, 4, part)
    tiles = sum(up(min(part, length - first), 64) for first in range(0, length, part))
    exact = 4.0 * tiles * heads * batch * 16 * 64 * 128
    assert dict(made.units)["bf16"] == pytest.approx(exact, rel=0.01)


def test_counting_takes_as_long_for_large_shapes_as_for_small() -> None:
    taken = []
    for length in (1024, 131072):
        name = "flash64_sm80.ptx"
        function = next(iter(module(name).kernels()))
        launch = Launch(
            id=LaunchId(0),
            module=ModuleId(0),
            kernel=function.name,
            grid=(up(length, 64), 256, 1),
            block=(128, 1, 1),
            arguments=(
                *(Pointer(n, 0) for n in range(4)),
                Scalar(DataType.S32, length),
                Scalar(DataType.S32, 1),
                Scalar(DataType.F32, 0),
            ),
        )
        code = counting.thread_code(function)
        counter = counting._Counter(code, launch, counting._arguments(function, launch))
        counter.count()
        taken.append(counter.walked)
    assert max(taken) < 30_000
    assert taken[1] < 2 * taken[0]


def test_shared_memory_is_counted_by_bytes() -> None:
    """A warp's `ldmatrix.x4` moves 512 bytes, a `cp.async` its own bytes."""
    made, _ = gemm("gemm128_sm80.ptx", 4096, 4096, 4096)
    rounds, ctas = 4096 // 32, 1024
    stored = 2 * 128 * 32 * 2 * rounds * ctas
    # Four warps in two by two: each reads half of one tile and half of the other.
    read = 4 * (64 + 64) * 32 * 2 * rounds * ctas
    assert made.shared_traffic == pytest.approx(stored + read, rel=0.05)
