"""Library calls as launches: what they compute by their operands, and how their times behave."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tessera.frontend.machine.gpu_table import gpu_table
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.machine.tables import bar_constants
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import TableKind
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import BufferId, LaunchId, LibraryCall, Operand, Pointer
from tessera.planning.prices.call_shapes import call_shape_of
from tessera.planning.prices.carried import row_call
from tessera.planning.prices.device_model import Traffic
from tessera.planning.prices.library_calls import (
    Attention,
    CallShape,
    Plain,
    Product,
    RowCall,
    RowKind,
)
from tessera.planning.prices.library_launches import call_ns, launches
from tessera.planning.prices.model_bars import call_family, model_bar
from tessera.planning.prices.table_lookup import operations_and_bytes

H200 = machine_of("h200").cards[0].gpu


def operand(*shape: int, dtype: DataType = DataType.BF16) -> Operand:
    return Operand(pointer=Pointer(BufferId(0), 0), dtype=dtype, shape=shape)


def shape(name: str, reads: list[Operand], *writes: Operand, **attributes: object) -> CallShape:
    call = LibraryCall(
        id=LaunchId(0),
        operator=f"aten::{name}",
        reads=tuple(reads),
        writes=writes,
        attributes=tuple(attributes.items()),  # type: ignore[arg-type]
    )
    found, sure = call_shape_of(call, 0.0)
    assert sure
    return found


NOTHING = Traffic()


def ns(one: CallShape, traffic: Traffic = NOTHING, sms: int = 132) -> float:
    return call_ns(one, traffic, H200, sms)


def test_what_calls_compute() -> None:
    a, b = operand(8, 4096), operand(4096, 1024)
    assert shape("mm", [a, b], operand(8, 1024)) == Product(m=8, n=1024, k=4096)
    many = [operand(4, 8, 64), operand(4, 64, 32)]
    assert shape("bmm", many, operand(4, 8, 32)) == Product(m=8, n=32, k=64, batch=4)
    rows = shape("_softmax", [operand(6, 5, 100)], operand(6, 5, 100), dim=-1, half_to_float=False)
    assert rows == RowCall(RowKind.SOFTMAX, 30, 100, 2)
    summed = shape("cumsum", [operand(6, 100)], operand(6, 100), dim=0)
    assert summed == RowCall(RowKind.SCAN, 100, 6, 2)
    query, key = operand(2, 32, 1, 128), operand(2, 8, 999, 128)
    found = shape("scaled_dot_product_attention", [query, key, key], query, enable_gqa=True)
    sizes = {"batch": 2, "heads": 32, "kv_heads": 8, "queries": 1, "keys": 999, "size": 128}
    assert found == Attention(**sizes, causal=False)
    assert shape("add.Tensor", [a, a], a) == Plain(8 * 4096, 8 * 4096, 3 * 2 * 8 * 4096)


def test_threads_find_the_places_of_operands_that_do_not_lie_alike() -> None:
    wide = operand(4, 256, 256, 80)
    spread = shape("mul.Tensor", [operand(4, 256, 1, 80), operand(4, 1, 256, 80)], wide)
    assert isinstance(spread, Plain)
    assert (spread.dims, spread.operands) == (4, 3)
    assert spread.asked == 3 * 2 * 4 * 256 * 256 * 80
    assert ns(spread) > 2 * ns(replace(spread, dims=1))
    turned = replace(wide, strides=(256 * 256 * 80, 80, 256 * 80, 1))
    for alike in (wide, turned):
        together = shape("mul.Tensor", [alike, alike], alike)
        assert isinstance(together, Plain)
        assert together.dims == 1
    apart = shape("mul.Tensor", [turned, wide], wide)
    assert isinstance(apart, Plain)
    assert apart.dims == 4


def test_what_engines_do_around_a_call_takes_time() -> None:
    """On every GPU, for random sizes: narrowing grows with what is narrowed, and with nothing else;
    of many short sequences none waits for a kernel that joins parts."""
    drawn = random.Random(41)
    for gpu in gpu_table().values():
        m, n, k = (64 * drawn.randint(1, 64) for _ in range(3))
        bare = Product(m=m, n=n, k=k, unit="fp8", width=1)

        def narrowing(shape: Product, gpu: Gpu = gpu) -> float:
            whole, alone = replace(shape, narrowed=True), replace(shape, narrowed=False)
            return call_ns(whole, NOTHING, gpu, gpu.sms) - call_ns(alone, NOTHING, gpu, gpu.sms)

        assert 1e3 < narrowing(bare) == pytest.approx(narrowing(replace(bare, n=2 * n)))
        assert narrowing(replace(bare, m=64 * m)) > 2 * narrowing(bare)
        sizes = {"heads": 8, "kv_heads": 8, "queries": 1, "size": 128, "causal": False}
        one, many = (Attention(batch=b, keys=64, **sizes) for b in (1, 8 * gpu.sms))
        long = Attention(batch=1, keys=65536, **sizes)
        each = call_ns(many, NOTHING, gpu, gpu.sms) / 64
        assert each < call_ns(one, NOTHING, gpu, gpu.sms) < call_ns(long, NOTHING, gpu, gpu.sms)
        put = replace(one, put=True)
        assert call_ns(put, NOTHING, gpu, gpu.sms) > call_ns(one, NOTHING, gpu, gpu.sms) + 1e3


def test_an_input_in_16_bits_is_narrowed_before_a_product_in_8() -> None:
    given, weight = operand(8, 4096), operand(1024, 4096, dtype=DataType.E4M3)
    scale = operand(1, dtype=DataType.F32)
    eight = operand(8, 4096, dtype=DataType.E4M3)
    bare = shape("_scaled_mm", [eight, operand(4096, 1024, dtype=DataType.E4M3), scale, scale],
                 operand(8, 1024), out_dtype="bf16")  # fmt: skip
    assert isinstance(bare, Product)
    assert bare.unit == "fp8"
    assert not bare.narrowed
    call = LibraryCall(
        id=LaunchId(0), operator="tessera::quantized_linear", reads=(given, weight, scale),
        writes=(operand(8, 1024),), attributes=(("arithmetic", "e4m3"),),
    )  # fmt: skip
    assert call_shape_of(call, 0.0)[0] == replace(bare, narrowed=True)


def test_bars_of_the_model_are_those_of_the_family() -> None:
    drawn, gpus = random.Random(7), list(gpu_table().values())
    kinds = [
        (TableKind.GEMM, ("bfloat16",), 3),
        (TableKind.GEMM, ("fp8",), 3),
        (TableKind.CONTEXT, ("bfloat16", "bfloat16", 128, 0), 2),
        (TableKind.GENERATION, ("bfloat16", "bfloat16", 128, 0), 2),
        (TableKind.MOE, ("w4a16_mxfp4", 2880, 2880, 4, 32), 1),
    ]
    for kind, fixed, count in kinds * 8:
        sizes = tuple(2 ** drawn.randint(0, 13) for _ in range(count))
        sizes += (32, 8) if count == 2 else (1, 1) if count == 1 else ()
        gpu, call = drawn.choice(gpus), row_call(kind, fixed, sizes)
        family = call_family(call)
        assert family is not None
        assert family.startswith(kind.value)
        *_, least, most = bar_constants("model_bars")[family]
        moved = operations_and_bytes(kind, fixed, sizes)[1]
        bar = model_bar(call, moved, call_ns(call, Traffic(cold=moved), gpu, gpu.sms), gpu)
        assert bar is not None
        assert 0.05 < least <= bar <= most < 2.0
    assert model_bar(Plain(1e6, 1e6, 1e6), 1e6, 1e4, gpus[0]) is None


def test_calls_that_no_table_knows_are_unsure() -> None:
    call = LibraryCall(id=LaunchId(0), operator="mine::thing", reads=(), writes=(operand(8),))
    assert call_shape_of(call, 0.0) == (Plain(8.0, 8.0, 16.0), False)


@pytest.mark.parametrize("parts", [1, 2])
def test_work_of_products_holds_all_operations(parts: int) -> None:
    one = Product(m=300, n=1000, k=4096 * parts)
    for work in launches(one):
        done = sum(count for _, count in work.units)
        assert done >= 2.0 * one.m * one.n * one.k


@pytest.mark.parametrize("unit", ["bf16", "fp32"])
def test_work_of_products_of_any_kind_holds_all_operations(unit: str) -> None:
    for one in (Product(m=77, n=1101, k=1101, batch=3, unit=unit), Product(m=16, n=64, k=16)):
        for work in launches(one):
            assert sum(count for _, count in work.units) >= 2.0 * one.batch * one.m * one.n * one.k


def test_products_without_tensor_cores_issue_each_sum() -> None:
    plain = Product(m=1024, n=1024, k=1024, unit="fp32", width=4)
    for work in launches(plain):
        assert work.instructions >= 1024**3
    assert ns(plain) > 3 * ns(Product(m=1024, n=1024, k=1024))


def test_rows_that_are_not_aligned_take_longer() -> None:
    odd, even = (Product(m=1104, n=n, k=1104, batch=24) for n in (1101, 1104))
    assert ns(odd) > 3 * ns(even)
    pairs = ns(Product(m=1104, n=1100, k=1104, batch=24))  # four elements at a time
    assert ns(even) < pairs < ns(odd)
    vector = Product(m=4096, n=1, k=4095)
    assert ns(vector) < 2 * ns(Product(m=4096, n=8, k=4096))


def test_the_smallest_product_takes_as_long_as_in_tables() -> None:
    """2.5 us on an H200 in those of three libraries (`direction_rows.json`)."""
    assert 2_200 < ns(Product(m=1, n=64, k=64), Traffic(warm=8448.0)) < 2_800


def test_tiles_follow_the_size_of_the_gpu() -> None:
    """Tiles of 96 rows are one for each SM of 132; those of 128 leave some without work."""
    few = ns(Product(m=1024, n=1536, k=6144))
    assert few < 0.85 * ns(Product(m=1536, n=1536, k=6144))


def test_times_behave() -> None:
    assert ns(Product(m=64, n=4096, k=4096)) < ns(Product(m=4096, n=4096, k=4096))
    assert ns(Product(m=4096, n=4096, k=4096), sms=48) > ns(Product(m=4096, n=4096, k=4096))
    flops = 2.0 * 8192**3 / ns(Product(m=8192, n=8192, k=8192)) * 1e9
    assert 0.4e15 < flops < 0.99e15
    full = Attention(batch=1, heads=32, kv_heads=8, queries=4096, keys=4096, size=128, causal=False)
    half = Attention(batch=1, heads=32, kv_heads=8, queries=4096, keys=4096, size=128, causal=True)
    assert 1.5 < ns(full) / ns(half) < 2.1
    # One thing after the other: a scan of few rows takes longer than a norm of them.
    assert ns(RowCall(RowKind.SCAN, 128, 8192, 2)) > 2 * ns(RowCall(RowKind.NORM, 128, 8192, 2))
    moved = 1e9
    copied = ns(Plain(moved / 4, 0.0, moved), Traffic(cold=moved))
    assert 1.0 < copied * H200.memory_bandwidth / 1e9 / moved < 1.3
