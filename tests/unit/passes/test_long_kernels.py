"""Long kernels: exact regions, and work in proportion to what was read, in counted operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.ir.graph.access import Access, Certainty
from tessera.ir.graph.region import Interval
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.footprint.steps import StepRunner
from tests.helpers.operations import operations
from tests.helpers.share import least

_HEAD = """//! tessera.trace 1
//! buffer y bytes={bytes} role=output
//! buffer x bytes=131072 role=input
//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y, .param .u64 x)
{{
  .reg .pred %p<70000>;
  .reg .b32 %r<70000>;
  .reg .b64 %d<70000>;
  ld.param.u64 %d1, [y];
  ld.param.u64 %d2, [x];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r3, 32, %r4;
  mul.wide.u32 %d3, %r5, 4;
  add.u64 %d4, %d1, %d3;
  add.u64 %d5, %d2, %d3;
  mov.u32 %r10, %r5;
"""
_TAIL = """
  ret;
}
//! launch m.k grid=1000,1,1 block=32,1,1 args=[y, x]
"""
_STORE = """
  and.b32 %r6, %r10, 1023;
  mul.wide.u32 %d6, %r6, 4;
  add.u64 %d7, %d1, %d6;
  st.global.u32 [%d7], %r5;
"""


def kernel(lines: Iterator[str], size: int = 131072) -> ir.Program:
    """32 threads in each of 1000 CTAs; `%r5` is the thread's number, `%d4` its word in y."""
    text = _HEAD.format(bytes=size) + "\n".join(lines) + _TAIL
    return read_program(Source("t.ptx", text))[0]


def reused(count: int) -> Iterator[str]:
    """Few names for many values, most of which nothing reads."""
    for i in range(count // 2):
        one, two = 10 + i % 20, 10 + (i + 7) % 20
        yield f"add.u32 %r{one}, %r5, {i}; xor.b32 %r{two}, %r{one}, {i & 7};"
    yield _STORE


def chain(count: int) -> Iterator[str]:
    """A sum that the address hangs on from its first term to its last."""
    yield "mov.u32 %r100, %r5;"
    for i in range(count):
        yield f"add.u32 %r{101 + i}, %r{100 + i}, {i % 7};"
    yield f"mov.u32 %r10, %r{100 + count};"
    yield _STORE


def mixed_chain(count: int) -> Iterator[str]:
    """The same with products and bits, of the thread alone."""
    yield "mov.u32 %r10, %r4;"
    for i in range(count // 4):
        yield f"mad.lo.u32 %r10, %r10, 1664525, {i}; shr.u32 %r11, %r10, 7;"
        yield "xor.b32 %r10, %r10, %r11; add.u32 %r10, %r10, 3;"
    yield _STORE


def fan_in(count: int) -> Iterator[str]:
    """One sum of many values."""
    for i in range(count // 2):
        yield f"add.u32 %r{100 + i}, %r4, {i};"
    for i in range(count // 2):
        yield f"add.u32 %r10, %r10, %r{100 + i};"
    yield _STORE


def blocks_of_threads(count: int) -> Iterator[str]:
    """Branches that the thread decides."""
    for i in range(count // 4):
        yield f"setp.lt.u32 %p{i + 1}, %r4, {i % 32}; @!%p{i + 1} bra L{i}; add.u32 %r10, %r10, 1;"
        yield f"L{i}: add.u32 %r10, %r10, 2;"
    yield _STORE


def blocks_of_data(count: int) -> Iterator[str]:
    """Branches that data decides, each around a store."""
    yield "ld.global.u32 %r11, [%d5];"
    for i in range(count // 3):
        yield f"setp.lt.u32 %p{i + 1}, %r11, {i}; @!%p{i + 1} bra L{i};"
        yield f"st.global.u32 [%d4], {i}; L{i}:"


def early_exits(count: int) -> Iterator[str]:
    """Many ways to the end."""
    for i in range(count // 2):
        yield f"setp.eq.u32 %p{i + 1}, %r4, {32 + i}; @%p{i + 1} bra END;"
    yield _STORE + "END:"


def traps(count: int) -> Iterator[str]:
    """Many assertions that hold, behind each other."""
    for i in range(count // 3):
        yield f"setp.ne.u32 %p{i + 1}, %r4, {32 + i}; @%p{i + 1} bra L{i}; bra T{i};"
        yield f"L{i}:"
    yield _STORE + "ret;"
    for i in range(count // 3):
        yield f"T{i}: {'trap;' if i == 0 else f'bra T{i - 1};'}"


def predicates(count: int) -> Iterator[str]:
    """Sums under predicates."""
    for i in range(count // 2):
        yield f"setp.lt.u32 %p{i + 1}, %r4, {i % 32}; @%p{i + 1} add.u32 %r10, %r10, 1;"
    yield _STORE


def live_predicates(count: int) -> Iterator[str]:
    """Predicates that live through many blocks."""
    for i in range(count // 3):
        yield f"setp.lt.u32 %p{i + 1}, %r4, {i % 32};"
    for i in range(count // 3):
        yield f"@%p{i + 1} bra L{i}; add.u32 %r10, %r10, 1; L{i}:"
    yield _STORE


def guarded_stores(count: int) -> Iterator[str]:
    """Stores under predicates that data decides."""
    yield "ld.global.u32 %r11, [%d5];"
    for i in range(count // 2):
        yield f"setp.lt.u32 %p{i + 1}, %r11, {i}; @%p{i + 1} st.global.u32 [%d4], {i};"


def stores(count: int) -> Iterator[str]:
    """Stores all over a buffer."""
    for i in range(count):
        yield f"st.global.u32 [%d4+{128000 * i}], %r5;"


def pointers(count: int) -> Iterator[str]:
    """Stores through a pointer that moves on."""
    for i in range(count // 2):
        yield f"st.global.u32 [%d{4 + i}], %r5; add.u64 %d{5 + i}, %d{4 + i}, 128000;"


def loads(count: int) -> Iterator[str]:
    """Loads whose sum is stored."""
    for i in range(count // 2):
        yield f"ld.global.u32 %r{100 + i}, [%d5+{4 * (i % 64)}]; add.u32 %r20, %r20, %r{100 + i};"
    yield "st.global.u32 [%d4], %r20;"


def read_back(count: int) -> Iterator[str]:
    """Loads of what the thread has stored."""
    for i in range(count // 2):
        place = f"[%d4+{128000 * i}]"
        yield f"st.global.u32 {place}, %r5; ld.global.u32 %r{100 + i}, {place};"


def local_words(count: int) -> Iterator[str]:
    """Words of local memory."""
    yield ".local .align 8 .b8 words[65536]; mov.u64 %d8, words;"
    for i in range(count // 2):
        yield f"st.local.u32 [%d8+{4 * i}], %r5; ld.local.u32 %r{100 + i}, [%d8+{4 * i}];"
    yield f"mov.u32 %r10, %r{99 + count // 2};"
    yield _STORE


def loops(count: int) -> Iterator[str]:
    """Loops, one after the other."""
    for i in range(count // 5):
        yield f"mov.u32 %r7, 0; L{i}: add.u32 %r10, %r10, 1; add.u32 %r7, %r7, 1;"
        yield f"setp.lt.u32 %p{i + 1}, %r7, 4; @%p{i + 1} bra L{i};"
    yield _STORE


def accesses(program: ir.Program) -> tuple[Access, ...]:
    """What the launch touches."""
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert not step.diagnostics
    return step.accesses


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Callable[[ir.Program], int]:
    """How many instructions a launch is followed through, over all pieces of its grid."""
    count = 0
    step = StepRunner.step

    def counted(*args: object) -> None:
        nonlocal count
        count += 1
        step(*args)  # type: ignore[arg-type]

    def of(program: ir.Program) -> int:
        nonlocal count
        count = 0
        accesses(program)
        return count

    monkeypatch.setattr(StepRunner, "step", counted)
    return of


def test_what_nothing_reads_is_not_followed(followed: Callable[[ir.Program], int]) -> None:
    """Whatever the names of registers: nearly all of these instructions decide nothing."""
    assert max(followed(kernel(reused(count))) for count in (400, 4000)) < 200


_SHAPES = (
    reused,
    chain,
    mixed_chain,
    fan_in,
    blocks_of_threads,
    blocks_of_data,
    early_exits,
    traps,
    predicates,
    live_predicates,
    guarded_stores,
    stores,
    pointers,
    loads,
    read_back,
    local_words,
    loops,
)


@pytest.mark.parametrize("shape", _SHAPES, ids=lambda shape: shape.__name__)
def test_work_grows_with_the_kernel(shape: Callable[[int], Iterator[str]]) -> None:
    size = least(300, 45)
    few, many = (operations(partial(graph_of, shape, count)) for count in (size, 4 * size))
    assert many < 4.4 * few
    assert many < 4 * size * 1200


def graph_of(shape: Callable[[int], Iterator[str]], count: int) -> None:
    program = kernel(shape(count), 128000 * count + 4096)
    AnalysisManager(program).get(Dependences)


def test_a_chain_is_followed_once(followed: Callable[[ir.Program], int]) -> None:
    """However often its CTAs are taken apart at its end."""
    assert followed(kernel(chain(2000))) < 2 * 2000


def test_a_long_kernel_is_exact() -> None:
    (write,) = accesses(kernel(reused(16_000)))
    assert (write.region, write.certainty) == (Interval(0, 4096), Certainty.MUST)


@pytest.mark.slow
def test_a_very_long_kernel_is_exact() -> None:
    (write,) = accesses(kernel(reused(64_000)))
    assert (write.region, write.certainty) == (Interval(0, 4096), Certainty.MUST)


_OTHER_READERS = {
    "a name that a store reads": "add.u32 %r10, %r5, 7; st.global.u32 [%d4], %r10;",
    "a name that a guard reads": "setp.lt.u32 %p1, %r5, 7; @%p1 st.global.u32 [%d4], 1;",
    "a name in the other half of a move": "mov.b64 {%r10, %r11}, %d4; mov.b64 %d8, {%r10, %r11};"
    "st.global.u32 [%d8], 1;",
}


@pytest.mark.parametrize("lines", _OTHER_READERS.values(), ids=_OTHER_READERS)
def test_a_name_that_is_used_twice_keeps_both_values(lines: str) -> None:
    """A write that nothing reads leaves a name with what it held before, for nobody."""
    alone = accesses(kernel(iter([lines])))
    both = accesses(kernel(iter(["mov.u32 %r10, %r4;", "mov.u32 %r10, 3;", lines, _STORE])))
    assert set(alone) <= set(both)
