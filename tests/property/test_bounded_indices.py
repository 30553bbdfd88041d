"""Indices from memory that the code bounds: random kernels against the log of the CPU backend.

The kernels of `index_strategies` compare, clamp, mask, select and count up to numbers from memory,
in all widths and signs, and use them in branches, under guards, after traps and in loops.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.backend.ptx_executor.device import Device
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.lane_values import facts
from tessera.passes.lane_values.symbols import Assumptions, PredicateFacts, SumBound
from tests.helpers.access_oracle import Log
from tests.property.index_strategies import HALF, WORDS, index_kernel
from tests.property.test_grid_pieces import in_pieces
from tests.property.test_soundness_generated import check_log

GRID, BLOCK = (3, 1, 1), (8, 1, 1)
SIZES = {"out": 2 * HALF, "data": 8 * WORDS}


def program_of(text: str) -> ir.Program:
    buffers = tuple(
        ir.Buffer(id=ir.BufferId(i), name=name, bytes=size, role=ir.Role.STATE)
        for i, (name, size) in enumerate(SIZES.items())
    )
    launch = ir.Launch(
        id=ir.LaunchId(0),
        module=ir.ModuleId(0),
        kernel="k",
        grid=GRID,
        block=BLOCK,
        arguments=(ir.Pointer(ir.BufferId(0), HALF), ir.Pointer(ir.BufferId(1))),
    )
    variant = ir.ModuleVariant(arch="sm_80", text=text, ptx=parse_module(text, "k.ptx"))
    module = ir.ProgramModule(ir.ModuleId(0), "m", (variant,))
    return ir.Program(buffers=buffers, modules=(module,), steps=(launch,))


def contents(seed: int) -> np.ndarray:
    """Words near bounds, small ones, and any."""
    random = np.random.default_rng(seed)
    near = random.choice([0, 1, 7, 31, 32, 40, 63, 64, 100, -1, -32, -64, -2048], WORDS)
    near = near + random.integers(-2, 3, WORDS)
    anything = random.integers(-(1 << 63), (1 << 63) - 1, WORDS)
    return np.where(random.random(WORDS) < (seed % 3) / 4, anything, near).astype(np.int64)


def log_of(program: ir.Program, words: np.ndarray) -> Log | None:
    """What a run touches; None if it ends in a trap."""
    with Device() as device:
        module = device.load(program.modules[0].variants[0].ptx)
        out = device.array(np.zeros(SIZES["out"], np.uint8), "out")
        data = device.array(words.view(np.uint8), "data")
        try:
            return module["k"].launch(GRID, BLOCK, [out.at(HALF), data]).accesses
        except TesseraError:
            return None


@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=settings.default.max_examples // 2,
)
@given(st.integers(0, 1 << 40))
def test_logged_bytes_are_in_the_regions(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    program = program_of(index_kernel(seed))
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    pieces = in_pieces(program)
    for number in range(4):
        log = log_of(program, contents(seed % 1000 + number))
        if log is not None:
            check_log(program, step, log, f"contents {number}")
            check_log(program, pieces, log, f"contents {number}, in pieces")


# --- one kernel for each bound, and for each way to break one ---------------------------------

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data)
{
    .reg .pred %p<8>;
    .reg .b16 %h<4>;
    .reg .b32 %r<16>, %thread;
    .reg .b64 %w<16>, %out, %same, %own;
    ld.param.u64 %out, [out];
    ld.param.u64 %same, [data];
    mov.u32 %thread, %tid.x;
    mad.wide.u32 %own, %thread, 8, %same;
"""
TAIL = "\nDONE:\n    ret;\nTRAP:\n    trap;\n}\n"
OWN = "ld.global.u32 %r1, [%own];"
SAME = "ld.global.u32 %r1, [%same];"
AT = "mul.wide.s32 %w1, %r1, 4; add.s64 %w2, %out, %w1;"
STORE = AT + "st.global.u32 [%w2], 7;"
LIMIT = "setp.lt.u32 %p1, %r1, 64;"
WRAP = "shr.u64 %w4, %w3, 52; and.b64 %w4, %w4, 2048; add.s64 %w3, %w3, %w4;"
WIDE = "shl.b64 %w1, %w3, 2; add.s64 %w2, %out, %w1; st.global.u32 [%w2], 7;"
LOOP = """
    mov.u32 %r2, 0;
    mov.u64 %w5, %out;
L:
    st.global.u32 [%w5], 7;
    add.s64 %w5, %w5, 16;
    add.u32 %r2, %r2, STEP;
    CHANGE
    setp.lt.s32 %p2, %r2, %r1;
    @%p2 bra L;
"""
SHORT = LOOP.replace("STEP", "1").replace("CHANGE", "")
BOUNDED = {
    "a trap": f"{OWN} {LIMIT} @!%p1 bra TRAP; {STORE}",
    "a trap of a shared number": f"{SAME} {LIMIT} setp.ne.or.u32 %p1, %thread, 0, %p1;"
    f"@!%p1 bra TRAP; {STORE}",
    "a second load": f"{OWN} ld.global.u32 %r3, [%own]; setp.gt.u32 %p1, %r3, 63; @%p1 bra TRAP;"
    f"{STORE}",
    "a branch": f"{OWN} {LIMIT} @!%p1 bra DONE; {STORE}",
    "a guard": f"{OWN} {LIMIT} {AT} @%p1 st.global.u32 [%w2], 7;",
    "an address before its guard": f"{OWN} {AT} {LIMIT} @%p1 st.global.u32 [%w2], 7;",
    "two signed tests": f"{OWN} setp.lt.s32 %p1, %r1, 64; setp.ge.and.s32 %p1, %r1, 0, %p1; {AT}"
    "@%p1 st.global.u32 [%w2], 7;",
    "a mask": f"{OWN} and.b32 %r1, %r1, 63; {STORE}",
    "a clamp": f"{OWN} min.s32 %r1, %r1, 63; max.s32 %r1, %r1, 0; {STORE}",
    "a selection": f"{OWN} {LIMIT} selp.b32 %r1, %r1, 0, %p1; {STORE}",
    "a narrow type": f"ld.global.u8 %r1, [%own]; shr.u32 %r1, %r1, 2; {STORE}",
    "an index from the end": f"ld.global.u64 %w3, [%same]; {WRAP}"
    f"setp.gt.u64 %p1, %w3, 2047; @%p1 bra TRAP; shr.u64 %w3, %w3, 5; {WIDE}",
    "a selected index from the end": "ld.global.s64 %w3, [%own]; setp.lt.s64 %p1, %w3, 0;"
    "add.s64 %w4, %w3, 64; selp.b64 %w5, %w4, %w3, %p1; setp.gt.u64 %p2, %w5, 63; @%p2 bra TRAP;"
    "shl.b64 %w3, %w3, 2; add.s64 %w4, %w3, 256; selp.b64 %w3, %w4, %w3, %p1;"
    "add.s64 %w2, %out, %w3; st.global.u32 [%w2], 7;",
    "twice a sum": f"{OWN} ld.global.u32 %r3, [%own+8]; and.b32 %r1, %r1, 255;"
    "and.b32 %r3, %r3, 255; add.u32 %r4, %r1, %r3; setp.gt.u32 %p1, %r4, 31; @%p1 bra TRAP;"
    f"mul.lo.s32 %r1, %r1, 2; mul.lo.s32 %r3, %r3, 2; add.s32 %r1, %r1, %r3; {STORE}",
    "a loop": f"{OWN} min.s32 %r1, %r1, 16; {SHORT}",
    "a size": f"{OWN} {LIMIT} {AT} selp.b32 %r2, 4, 0, %p1; .shared .align 4 .b8 held[4];"
    "mov.u32 %r3, held; cp.async.ca.shared.global [%r3], [%w2], 4, %r2;",
}
# Each with a number that shows what the bound does not hold off, and the check that sees it.
BROKEN: dict[str, tuple[str, int, str]] = {
    "a signed test of a negative index": (
        f"{OWN} setp.lt.s32 %p1, %r1, 64; {AT} @%p1 st.global.u32 [%w2], 7;",
        -9,
        "",
    ),
    "a test of another width": (
        f"{OWN} cvt.u32.u8 %r2, %r1; setp.lt.u32 %p1, %r2, 64; {AT} @%p1 st.global.u32 [%w2], 7;",
        512 + 5,
        "",
    ),
    "a sum that wraps before the test": (
        "ld.global.s16 %r1, [%own]; cvt.s16.s32 %h1, %r1; add.s16 %h1, %h1, -4096;"
        "setp.lt.s16 %p1, %h1, 100; cvt.s64.s32 %w1, %r1; add.s64 %w2, %out, %w1;"
        "@%p1 st.global.u8 [%w2], 7;",
        5,
        "range",
    ),
    "an unsigned test of both halves": (
        f"{OWN} setp.gt.u32 %p1, %r1, 9; {AT} @%p1 st.global.u32 [%w2], 7;",
        -9,
        "range",
    ),
    "a change after the test": (
        f"{OWN} {LIMIT} add.u32 %r1, %r1, 100; {AT} @%p1 st.global.u32 [%w2], 7;",
        60,
        "",
    ),
    "a branch the other way": (f"{OWN} {LIMIT} @%p1 bra DONE; {STORE}", 99, "inverted"),
    "an opposite guard": (f"{OWN} {LIMIT} {AT} @!%p1 st.global.u32 [%w2], 7;", 99, "inverted"),
    "after the branch": (f"{OWN} {LIMIT} @!%p1 bra M; mov.u32 %r9, 1; M: {STORE}", 99, "undo"),
    "memory that changes": (
        f"{SAME} {LIMIT} st.global.u32 [%same], 99; ld.global.u32 %r1, [%same]; {AT}"
        "@%p1 st.global.u32 [%w2], 7;",
        5,
        "steady",
    ),
    "a product that wraps": (
        f"{OWN} min.u32 %r1, %r1, 0x3fffffff; mul.lo.s32 %r1, %r1, 4; cvt.s64.s32 %w1, %r1;"
        "add.s64 %w2, %out, %w1; st.global.u32 [%w2], 7;",
        0x3FFFFFF0,
        "extended",
    ),
    "a trap of some threads": (
        f"{OWN} {LIMIT} setp.ne.or.u32 %p1, %thread, 0, %p1; @!%p1 bra TRAP; {STORE}",
        -1,
        "everybody",
    ),
    "one of two predicates": (
        f"{OWN} {LIMIT} ld.global.u32 %r3, [%own+8]; setp.ne.or.u32 %p1, %r3, 1234567, %p1;"
        f"{AT} @%p1 st.global.u32 [%w2], 7;",
        99,
        "either",
    ),
    "an end that moves": (
        f"{OWN} min.s32 %r1, %r1, 16; "
        + LOOP.replace("STEP", "1")
        .replace("CHANGE", "and.b32 %r1, %r3, 127;")
        .replace("L:", "ld.global.u32 %r3, [%own]; L:"),
        90,
        "",
    ),
    "steps that differ": (
        f"{OWN} min.s32 %r1, %r1, 16; mov.u32 %r4, 8; "
        + LOOP.replace("STEP", "%r4").replace(
            "CHANGE", "shr.u32 %r4, %r4, 1; max.u32 %r4, %r4, 1;"
        ),
        90,
        "next",
    ),
}

# The rounds of a loop whose end is data; what a thread does in the second it did not in the first.
COUNTED = "ld.global.u32 %r5, [%same]; min.u32 %r5, %r5, 20; mov.u32 %r2, 0;"
NEXT = "add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, %r5; @%p3 bra L;"
LATER = {
    "threads get the number that others had": (
        f"ld.global.u32 %r3, [%same+8]; and.b32 %r3, %r3, 15; mov.u32 %r1, 40;"
        f"setp.lt.u32 %p1, %thread, 5; @%p1 mov.u32 %r1, %r3; {COUNTED}"
        "mul.wide.u32 %w3, %thread, 512; add.s64 %out, %out, %w3;"
        f"L: {STORE} setp.ge.u32 %p2, %r2, 1; @%p2 mov.u32 %r1, %r3; {NEXT}"
    ),
    "a thread ends": (
        f"{COUNTED} mov.u32 %r1, %thread; setp.eq.u32 %p1, %thread, 3;"
        "L: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, %r5;"
        f"setp.ge.and.u32 %p2, %r2, 2, %p1; @%p2 exit; @%p3 bra L; {STORE}"
    ),
}


def regions(body: str) -> tuple[ir.Program, list]:
    program = program_of(HEAD + body + TAIL)
    return program, [AnalysisManager(program).get(AccessRegions).steps[0], in_pieces(program)]


@pytest.mark.parametrize("name", BOUNDED)
def test_the_code_bounds_an_index(name: str) -> None:
    program, steps = regions(BOUNDED[name])
    for step in steps:
        touched = [access.region for access in step.accesses if access.buffer == 0]
        found = regions_bytes(touched, 2 * HALF)
        assert intervals.pairs(found)[0][0] == HALF, found
        assert intervals.pairs(found)[-1][1] <= HALF + 256 + 16, found
    for word in (0, 5, 63, 64, 99, -1, -5, -64, -2048, 1 << 40, -(1 << 62)):
        log = log_of(program, np.full(WORDS, word, np.int64))
        for step in steps if log is not None else ():
            check_log(program, step, log, str(word))


def missing(name: str) -> bool:
    """Whether the log of a broken case has bytes that no region holds."""
    body, word, _ = BROKEN[name]
    program, steps = regions(body)
    words = np.full(WORDS, 5, np.int64)
    words[:3] = (5, word, word) if name == "a trap of some threads" else word
    log = log_of(program, words)
    assert log is not None
    try:
        for step in steps:
            check_log(program, step, log, name)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", BROKEN)
def test_where_a_bound_is_broken_nothing_is_missing(name: str) -> None:
    assert not missing(name)


@pytest.mark.parametrize("name", LATER)
def test_rounds_that_are_unlike_the_first(name: str) -> None:
    program, steps = regions(LATER[name])
    for rounds in (0, 1, 2, 9):
        words = np.full(WORDS, 5, np.int64)
        words[:3] = rounds
        log = log_of(program, words)
        assert log is not None
        for step in steps:
            assert not step.pins
            check_log(program, step, log, str(rounds))


def _careless(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a check away."""
    everywhere = np.ones((1, 1), np.bool_)

    def replace_with(path: str, instead: object) -> None:
        monkeypatch.setattr(f"tessera.passes.{path}", instead)

    match check:
        case "range":
            replace_with("lane_values.facts._is_whole", lambda *_: True)
        case "inverted":
            replace_with("lane_values.predicates.inverted", lambda told: told)
            replace_with(
                "footprint.machine._told",
                lambda p: PredicateFacts(*(p.facts or PredicateFacts())[::-1]),
            )
        case "undo":
            replace_with("lane_values.symbols.Assumptions.undo", lambda *_: None)
        case "steady":
            replace_with("footprint.footprint._is_steady", lambda *_: True)
        case "extended":
            replace_with("lane_values.sloped_ops.extended", lambda form, bits, *, is_signed: form)
        case "everybody":
            assume = Assumptions.assume
            replace_with(
                "lane_values.symbols.Assumptions.assume",
                lambda self, bounds, where, certain=None: assume(
                    self, [_widest(b) for b in bounds], everywhere, None
                ),
            )
        case "either":
            combined = facts.combined_facts
            replace_with(
                "lane_values.predicates.combined_facts", lambda _, values: combined("and", values)
            )
        case "next":
            replace_with("footprint.open_rounds._FollowedLoop._is_next", lambda *_: True)


def _widest(bound: SumBound) -> SumBound:
    """What one thread knows, as if all did."""
    shape = (1, 1)
    return SumBound(bound.terms, np.full(shape, bound.low.max()), np.full(shape, bound.high.min()))


@pytest.mark.parametrize("name", [name for name, case in BROKEN.items() if case[2]])
def test_without_the_check_something_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _careless(BROKEN[name][2], monkeypatch)
    assert missing(name)
