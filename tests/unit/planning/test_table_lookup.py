"""Lookups between, on and beyond the rows of a table; shapes of calls; hints and counted work."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from tessera.frontend.machine.gpu_table import find_gpu
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.tables import Sizes, TableKind, TableRows, WorkShape
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import (
    AttributeValue,
    Buffer,
    BufferId,
    Launch,
    LaunchId,
    LibraryCall,
    ModuleId,
    Operand,
    Pointer,
    Role,
    WorkHint,
)
from tessera.planning.prices.table_lookup import NOISE, TableIndex, ratio, roofline_ns
from tessera.planning.prices.work_shapes import (
    StepShape,
    call_shape,
    contradiction,
    found_hint,
    hint_shape,
    may_have_hint,
    step_shape,
)

A100, L40S = find_gpu("a100"), find_gpu("l40s")
SIDES = (256, 1024, 4096, 16384)
GRID = [(m, n, k) for m in (1, 8, 64, 512) for n in SIDES for k in SIDES]


def table(factor: float = 1.5, gpu: str = "a100", without: Sizes = ()) -> TableIndex:
    """Times that are a roofline's, made longer."""
    found = find_gpu(gpu)
    sizes = tuple(s for s in GRID if s != without)
    rows = TableRows(
        gpu=found.key,
        library="vllm",
        version="1.0",
        kind=TableKind.GEMM,
        fixed=("bfloat16",),
        sizes=sizes,
        ns=tuple(factor * roofline_ns(found, TableKind.GEMM, ("bfloat16",), s) for s in sizes),
    )
    return TableIndex(rows, found)


def test_a_row_is_its_own_answer() -> None:
    index = table()
    found = index.find((8, 1024, 4096))
    assert found is not None
    assert found.ns == pytest.approx(index.rows.ns[index.rows.sizes.index((8, 1024, 4096))])
    assert found.error == NOISE


@pytest.mark.parametrize("sizes", [(8, 3000, 4096), (20, 1500, 9000), (300, 256, 300)])
def test_between_rows_a_roofline_is_found_again(sizes: Sizes) -> None:
    found = table().find(sizes)
    assert found is not None
    wanted = 1.5 * roofline_ns(A100, TableKind.GEMM, ("bfloat16",), sizes)
    assert found.ns == pytest.approx(wanted)
    assert NOISE < found.error < 0.1


def test_a_hole_is_bridged() -> None:
    found = table(without=(8, 4096, 1024)).find((8, 4096, 1024))
    assert found is not None
    assert found.beyond == 0
    wanted = 1.5 * roofline_ns(A100, TableKind.GEMM, ("bfloat16",), (8, 4096, 1024))
    assert found.ns == pytest.approx(wanted)


def test_beyond_the_rows_the_bar_is_wide_and_far_beyond_there_is_nothing() -> None:
    near, far = table().find((768, 4096, 32768)), table().find((8, 4096, 10**6))
    assert near is not None
    assert near.beyond > 0
    assert near.error > 0.3
    assert near.ns > 2e5  # three times the last row: its work is three times as much
    assert far is None


def test_bars_are_as_wide_as_left_out_shapes_are_off() -> None:
    rows = table().rows
    rough = replace(
        rows,
        ns=tuple(
            ns * (1.4 if (s[1] == 1024) != (s[2] == 4096) else 1.0)
            for s, ns in zip(rows.sizes, rows.ns, strict=True)
        ),
    )
    smooth, bumpy = table().find((8, 2000, 2000)), TableIndex(rough, A100).find((8, 2000, 2000))
    assert smooth is not None
    assert bumpy is not None
    assert bumpy.error > 3 * smooth.error


def test_the_ratio_of_two_gpus() -> None:
    sizes = (8, 3000, 4096)
    found = ratio(table(1.5), table(3.0, "l40s"), sizes)
    assert found is not None
    rooflines = [roofline_ns(gpu, TableKind.GEMM, ("bfloat16",), sizes) for gpu in (L40S, A100)]
    assert found.ns == pytest.approx(2.0 * rooflines[0] / rooflines[1])


# --- shapes ------------------------------------------------------------------------------------


def operand(*shape: int, dtype: DataType = DataType.BF16) -> Operand:
    return Operand(pointer=Pointer(BufferId(0)), dtype=dtype, shape=shape)


def call(
    name: str, reads: list[Operand], result: Operand, **attributes: AttributeValue
) -> LibraryCall:
    return LibraryCall(
        id=LaunchId(0),
        operator=f"aten::{name}",
        reads=tuple(reads),
        writes=(result,),
        attributes=tuple(attributes.items()),
    )


def gemm(m: int, n: int, k: int, dtype: str = "bfloat16") -> WorkShape:
    return WorkShape(TableKind.GEMM, (dtype,), (m, n, k))


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (call("mm", [operand(8, 64), operand(64, 32)], operand(8, 32)), gemm(8, 32, 64)),
        (
            call("addmm", [operand(32), operand(8, 64), operand(64, 32)], operand(8, 32)),
            gemm(8, 32, 64),
        ),
        (call("linear", [operand(2, 4, 64), operand(32, 64)], operand(2, 4, 32)), gemm(8, 32, 64)),
        (call("bmm", [operand(1, 8, 64), operand(1, 64, 32)], operand(1, 8, 32)), gemm(8, 32, 64)),
        (call("bmm", [operand(2, 8, 64), operand(2, 64, 32)], operand(2, 8, 32)), None),
        (call("relu", [operand(8, 64)], operand(8, 64)), None),
        (
            call(
                "mm",
                [operand(8, 64, dtype=DataType.F32), operand(64, 32, dtype=DataType.F32)],
                operand(8, 32, dtype=DataType.F32),
            ),
            None,
        ),
    ],
)
def test_products_by_shape(made: LibraryCall, wanted: WorkShape | None) -> None:
    assert call_shape(made) == wanted


def attention(length: int, context: int, **attributes: AttributeValue) -> WorkShape | None:
    query, key = operand(4, 32, length, 128), operand(4, 8, context, 128)
    return call_shape(
        call(
            "scaled_dot_product_attention", [query, key, key], query, enable_gqa=True, **attributes
        )
    )


def test_attention_by_shape() -> None:
    fixed = ("bfloat16", "bfloat16", 128, 0)
    assert attention(1, 999) == WorkShape(TableKind.GENERATION, fixed, (4, 999, 32, 8))
    causal = attention(512, 512, is_causal=True)
    assert causal == WorkShape(TableKind.CONTEXT, fixed, (4, 512, 32, 8))
    assert attention(512, 512) is None  # sees everything: twice the work of the rows
    assert attention(16, 512, is_causal=True) is None
    few = attention(16, 512)  # 64 queries read each key together, as many as a tile takes
    assert few == WorkShape(TableKind.GENERATION, fixed, (4, 512, 512, 8))
    assert attention(17, 512) is None
    assert attention(8, 8) is None


@pytest.mark.parametrize("mask", [(4, 1, 1, 999), (4, 8, 4, 999), None])
def test_heads_that_are_packed_as_tokens_are_the_same_attention(
    mask: tuple[int, ...] | None,
) -> None:
    """Some models lay the heads of a group along the axis of tokens: the work is the same."""
    query, key = operand(4, 8, 4, 128), operand(4, 8, 999, 128)
    reads = [query, key, key, *([operand(*mask)] if mask else [])]
    packed = call_shape(call("scaled_dot_product_attention", reads, query))
    assert packed == attention(1, 999)


def counted(operations: float, asked: float) -> LaunchWork:
    return LaunchWork(
        ctas=1,
        threads=128,
        instructions=1.0,
        memory_instructions=1.0,
        asked_bytes=asked,
        units=(("bf16", operations),),
        chain=1.0,
        chain_loads=1.0,
        chain_barriers=0.0,
        shared_bytes=0,
        sure=True,
    )


def test_a_hint_is_believed_where_work_and_bytes_agree() -> None:
    shape = hint_shape(WorkHint("gemm", (8, 4096, 4096), DataType.F16))
    assert shape == gemm(8, 4096, 4096)
    assert shape is not None
    operations, moved = 2.0 * 8 * 4096 * 4096, 2.0 * 4096 * 4096
    assert not contradiction(shape, counted(operations, moved), moved)
    padded = 16 * operations  # a tile has 128 rows
    assert not contradiction(shape, counted(padded, moved), moved)
    assert "operations" in contradiction(shape, counted(operations / 8, moved), moved)
    assert "operations" in contradiction(shape, counted(64 * operations, moved), moved)
    assert "asks for" in contradiction(shape, counted(operations, moved / 8), moved)
    assert "may touch" in contradiction(shape, counted(operations, moved), moved / 8)
    assert "counted" in contradiction(shape, None, moved)


def buffer(at: int, role: Role, *shape: int, dtype: DataType = DataType.BF16) -> Buffer:
    size = prod(shape) * dtype.bytes
    return Buffer(id=BufferId(at), name=f"b{at}", bytes=size, role=role, dtype=dtype, shape=shape)


ROWS, RESULT = buffer(0, Role.TEMP, 2, 4, 4096), buffer(2, Role.TEMP, 8, 1024)
LAUNCH = Launch(
    id=LaunchId(0),
    module=ModuleId(0),
    kernel="k",
    grid=(1, 1, 1),
    block=(128, 1, 1),
    arguments=(),
)


@pytest.mark.parametrize("shape", [(1024, 4096), (4096, 1024)])
def test_a_launch_is_a_gemm_by_its_buffers_and_its_work(shape: tuple[int, int]) -> None:
    weight = buffer(1, Role.WEIGHT, *shape)
    operations, moved = 2.0 * 8 * 1024 * 4096, 2.0 * 1024 * 4096

    def found(done: float, *more: Buffer) -> StepShape:
        assert may_have_hint((ROWS, weight, *more), (RESULT,))
        counts = counted(done, moved)
        return step_shape(LAUNCH, counts, moved, (ROWS, weight, *more), (RESULT,))

    assert found(operations) == StepShape(gemm(8, 1024, 4096), own=False)
    assert found(operations / 4) == StepShape(own=False)
    other = buffer(3, Role.TEMP, 8, 1024)  # could be the rows of a second product
    assert found(operations, other).shape == gemm(8, 1024, 4096)
    assert found(operations, buffer(4, Role.WEIGHT, 512, 4096)).shape == gemm(8, 1024, 4096)
    wide = buffer(5, Role.TEMP, 4, 2, 2, 1024)
    result = buffer(6, Role.TEMP, 16, 4096)
    both = step_shape(
        LAUNCH, counted(operations, moved), moved, (ROWS, weight, wide), (RESULT, result)
    )
    assert both.shape is None  # two products fit
    assert not may_have_hint((ROWS, weight), (result,))
    assert not may_have_hint((ROWS,), (RESULT,))
    plain = replace(counted(operations, moved), units=(("fp32", operations),))
    assert step_shape(LAUNCH, plain, moved, (ROWS, weight), (RESULT,)).shape is None


def test_a_launch_is_an_attention_by_its_buffers_and_its_work() -> None:
    def found(length: int, context: int, part: float, *more: Buffer) -> WorkHint | None:
        query = buffer(0, Role.TEMP, 4, 32, length, 128)
        caches = [buffer(n, Role.STATE, 4, 8, context, 128) for n in (1, 2)]
        result = buffer(3, Role.TEMP, 4, length, 32, 128)
        moved = 2.0 * 2 * 4 * 8 * context * 128
        counts = counted(part * 4.0 * 4 * 32 * length * context * 128, 4 * moved)
        hint = found_hint(counts, 4 * moved, (query, *caches, *more), (result,))
        assert may_have_hint((query, *caches, *more), (result,)) or hint is None
        return hint

    assert found(1, 999, 1.0) == WorkHint("generation", (4, 999, 32, 8, 128), DataType.BF16)
    assert found(512, 512, 0.55) == WorkHint("context", (4, 512, 32, 8, 128), DataType.BF16)
    assert found(512, 512, 1.0) is None  # sees everything
    assert found(16, 512, 1.0) == WorkHint("generation", (4, 512, 512, 8, 128), DataType.BF16)
    assert found(17, 512, 1.0) is None
    assert found(1, 999, 0.1) is None
    assert found(1, 999, 1.0, buffer(4, Role.STATE, 4, 8, 999, 128)) is None  # which are values?


def test_hints_of_attention_and_experts() -> None:
    fixed = ("bfloat16", "bfloat16", 128, 0)
    for kind in (TableKind.CONTEXT, TableKind.GENERATION):
        shape = hint_shape(WorkHint(kind.value, (4, 512, 32, 8, 128), DataType.BF16))
        assert shape == WorkShape(kind, fixed, (4, 512, 32, 8))
        assert contradiction(shape, counted(1e3, 1e3), 1e12)
    experts = hint_shape(WorkHint("moe", (64, 2048, 768, 8, 128), DataType.BF16))
    assert experts == WorkShape(TableKind.MOE, ("bfloat16", 2048, 768, 8, 128), (64, 1, 1))
    assert hint_shape(WorkHint("gemm", (8, 8, 8), DataType.F32)) is None
    assert hint_shape(WorkHint("context", (4, 512, 30, 8, 128), DataType.BF16)) is None
