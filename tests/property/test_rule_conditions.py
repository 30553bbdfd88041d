"""One kernel for each rule that drops a read, makes a write certain or reuses a result.

Each breaks the rule's condition and nothing else, and what the CPU backend logs lies in the regions
all the same. Without the check of the condition (`without`) it does not: the kernel tests the check
and not something else. `docs/developer/soundness.md` has the rules, each with the function that
checks its condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.ptx.control_flow import _order_loops_together
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.footprint.both_ways import Guarded, Side, SureWrite
from tessera.passes.lane_values.lanes import MASKS, U64, Lanes, sloped
from tests.docs.test_names import resolve
from tests.helpers.access_oracle import compare

PASSES = "tessera.passes"
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "developer" / "soundness.md"
SIZE = 1024
CONTENTS = {
    "zeros": np.zeros(SIZE // 4, np.uint32),
    "ones": np.full(SIZE // 4, 0xFFFFFFFF, np.uint32),
    "small": np.random.default_rng(7).integers(0, 9, SIZE // 4).astype(np.uint32),
}
HEAD = """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n)
{
    .reg .pred %p<8>;
    .reg .b16 %h<4>;
    .reg .b32 %r<24>;
    .reg .b64 %d<24>;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    ld.param.u64 %d3, [z];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mul.wide.u32 %d4, %r2, 4;
    add.u64 %d5, %d1, %d4;
    add.u64 %d6, %d2, %d4;
    add.u64 %d7, %d3, %d4;
"""
# %p1 is decided by data, thread by thread; %r4 is 0 or 1.
DATA = "ld.global.u32 %r4, [%d5]; and.b32 %r4, %r4, 1; setp.eq.u32 %p1, %r4, 0;"
STORE = "st.global.u32 [%d6], %r2;"
# A read of the word of z that %r5 says.
READ = "mul.wide.u32 %d8, %r5, 4; add.u64 %d9, %d3, %d8; ld.global.u32 %r6, [%d9];"
# Eight rounds, with %r8 as their number.
LOOP = "mov.u32 %r8, 0; L: {} add.u32 %r8, %r8, 1; setp.lt.u32 %p7, %r8, {}; @%p7 bra L;"
WRITE = "mul.wide.u32 %d8, %r9, 4; add.u64 %d9, %d2, %d8; st.global.u32 [%d9], %r8;"
AGAIN = """
.func NAME(.reg .b32 %a, .reg .b64 %w)
{
    .reg .pred %q;
    .reg .b32 %b;
    .reg .b64 %v;
    setp.eq.u32 %q, %a, 0;
    @%q bra Z;
    sub.u32 %b, %a, 1;
    call NAME, (%b, %w);
    BODY
    ret;
Z:
    LAST
    ret;
}
"""
TWICE = """
.func (.param .b32 out) twice(.param .b32 in)
{
    .reg .b32 %a<3>;
    ld.param.b32 %a1, [in];
    st.param.b32 [out], 40;
    ld.param.b32 %a2, [in];
    add.u32 %a1, %a1, %a2;
    st.param.b32 [out], %a1;
    ret;
}
"""


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A kernel that breaks the condition of a rule, and how to leave out the check of it."""

    rule: str
    body: str
    without: tuple[str, Callable[..., Any]]
    functions: str = ""
    grid: int = 1
    block: int = 32
    target: str = "8.0 sm_80"
    x: int = 0


def again(name: str, body: str = "", last: str = "") -> str:
    return AGAIN.replace("NAME", name).replace("BODY", body).replace("LAST", last)


def never(*_: object, **__: object) -> bool:
    return False


def always(*_: object, **__: object) -> bool:
    return True


def nothing(*_: object, **__: object) -> frozenset[Any]:
    return frozenset()


def as_seen(rounds: Any, key: Any, first: Lanes, after: Any, step: Any, digit: Any) -> Lanes:
    """What a register holds after the last round if it went on as it was seen to."""
    if step is None:
        return first
    last = first.start + step.start * (digit.last.astype(U64) + U64(1))
    rest = {other: slope for other, slope in first.slopes.items() if other is not digit}
    return sloped(Lanes(last & MASKS[32], None), rest, rounds.machine.bits(key))


def whatever_the_predicate(
    state: Any, step: Any, number: int, guard: Any, address: Any, width: int
) -> None:
    """A write under a predicate, beside those under its opposite at any time before."""
    known = state.guarded_writes.setdefault(
        guard.register, Guarded(state.registers[guard.register])
    )
    write = SureWrite(step.index, number, address.start, width, state.arriving.sure, address.slopes)
    known.sides[guard.negated].add(write)
    state.settle_writes(Side([write]), known.sides[not guard.negated])


CASES = (
    # --- control ---
    Broken(
        rule="forks",
        body=f"""{DATA} setp.lt.u32 %p2, %r2, 16; mov.u32 %r8, 0; setp.lt.u32 %p3, %r2, 20;
        @%p3 bra B;
        A: add.u32 %r8, %r8, 1; setp.gt.u32 %p4, %r8, 3; @%p4 bra END;
        B: add.u32 %r8, %r8, 1; @%p1 bra D;
        @%p2 bra A; {STORE} bra A;
        D: @%p2 bra A; st.global.u32 [%d7], %r2; bra A;
        END:""",
        without=("footprint.machine.SliceMachine._check_entries", lambda self, block: None),
    ),
    Broken(
        rule="forks",
        body=f"""{DATA} mov.u32 %r8, 0; @%p1 bra T;
        S: add.u32 %r8, %r8, 1; setp.gt.u32 %p2, %r8, 6; @%p2 bra END;
        U: add.u32 %r8, %r8, 1; setp.gt.u32 %p2, %r8, 6; @%p2 bra END;
        setp.lt.u32 %p3, %r2, 7; @%p3 bra T;
        add.u32 %r8, %r8, 1; setp.gt.u32 %p2, %r8, 5; @%p2 bra END;
        {STORE} bra S;
        T: add.u32 %r8, %r8, 1; setp.gt.u32 %p2, %r8, 6; @%p2 bra END; bra U;
        END:""",
        without=(
            "..ir.ptx.control_flow._order_loops_together",
            lambda edges, loops, circles: _order_loops_together(edges, loops, []),
        ),
    ),
    Broken(
        rule="traps",
        body="mov.u32 %r9, 2; call __assertfail, (%r9, %d6);",
        functions=again("__assertfail", "st.global.u32 [%w], %b;"),
        without=(
            "kernel_facts.doomed_blocks.never_returns",
            lambda call, defined: "__assertfail" in str(call),
        ),
    ),
    Broken(
        rule="both sides",
        body=f"""{DATA} @%p1 bra O; {STORE} bra E;
        O: xor.b32 %r9, %r2, 1; {WRITE} E:""",
        without=("footprint.both_ways._overlap", lambda write, other: [write]),
    ),
    Broken(
        rule="predicates and their opposites",
        body=f"""{DATA} @%p1 {STORE} ld.global.u32 %r5, [%d7]; setp.ne.u32 %p1, %r5, 0;
        @!%p1 {STORE}""",
        without=("footprint.excerpt_state.SliceState._note_guarded", whatever_the_predicate),
    ),
    Broken(
        rule="calls that end threads",
        body=f"mov.u32 %r9, 2; call cudaStop, (%r9, %d6); {STORE}",
        functions=again("cudaStop", last="exit;"),
        without=("kernel_facts.call_graph._may_exit", never),
    ),
    Broken(
        rule="quiet calls",
        body="mov.u32 %r9, 2; call f, (%r9, %d6);",
        functions=again("f", "mul.wide.u32 %v, %b, 4; add.u64 %v, %v, %w; st.global.u32 [%v], %b;"),
        block=1,
        without=("kernel_facts.call_graph._reaches", lambda function: [function.name]),
    ),
    Broken(
        rule="inlined calls",
        body=f""".param .b32 q; st.param.b32 [q], 3; call (q), twice, (q);
        ld.param.b32 %r5, [q]; {READ}""",
        functions=TWICE,
        without=("kernel_facts.inline_calls._Inliner._share_variables", never),
    ),
    Broken(
        rule="elections",
        body=f"elect.sync _|%p1, -1; @%p1 {STORE}",
        target="8.6 sm_90a",
        without=(
            "footprint.excerpt_state.agreeing",
            lambda elected, values, threads: np.broadcast_to(elected, (1, threads)),
        ),
    ),
    Broken(
        rule="CTAs at once",
        body=f"setp.lt.u32 %p2, %r3, 300; mov.u32 %r9, 4; @%p2 mov.u32 %r9, 9; {WRITE}".replace(
            "%r8;", "%r2;"
        ),
        grid=600,
        without=(
            "lane_values.sloped_ops.nonnegative",
            lambda start, slopes, where=None: start >= 0,
        ),
    ),
    # --- registers ---
    Broken(
        rule="registers that are read before they are written",
        body=f"setp.eq.u32 %p1, %r2, 3; @%p1 mov.u32 %r5, 5; {READ}",
        without=("kernel_facts.live_steps.LiveSteps.unwritten", nothing),
    ),
    Broken(
        rule="registers that are read before they are written",
        body=f"{DATA} @%p1 bra O; mov.u32 %r5, 5; O: {READ}",
        without=("kernel_facts.live_steps.LiveSteps.unwritten", nothing),
    ),
    Broken(
        rule="results that are dropped",
        body=f"""setp.lt.u32 _|%p2, %r2, 8; {READ.replace("%r5", "%r2").replace("ld.", "@%p2 ld.")}
        .local .align 8 .b8 a[8]; st.local.v2.u32 [a], {{3, 9}};
        ld.local.v2.u32 {{_, %r5}}, [a]; mul.wide.u32 %d10, %r5, 4; add.u64 %d11, %d2, %d10;
        ld.global.u32 %r7, [%d11]; shfl.sync.idx.b32 _|%p3, %r2, 0, 31, -1; @%p3 {STORE}""",
        without=(
            "kernel_facts.operand_names.results_in",
            lambda operand: import_module(f"{PASSES}.kernel_facts.operand_names").registers_in(
                operand
            ),
        ),
    ),
    # --- rounds of loops ---
    Broken(
        rule="rounds of loops",
        body="mov.u32 %r9, 0; " + LOOP.format(f"{WRITE} add.u32 %r9, %r9, %r8;", 20),
        block=1,
        without=("footprint.rounds.LoopRounds._last", as_seen),
    ),
    # --- bytes ---
    Broken(
        rule="addresses that move alike",
        body=LOOP.format("mul.lo.u32 %r9, %r8, %r2; and.b32 %r9, %r9, 127; " + WRITE, 3),
        without=(
            "footprint.recorder.Recorder._distance",
            lambda self, old, new: int((new.start - old.start).flat[0]),
        ),
    ),
    Broken(
        rule="parameters that decide nothing",
        body=f"""mov.b64 %d10, n; ld.param.u32 %r5, [%d10]; {READ}""",
        without=("dependences.access_regions.unneeded_parameters", lambda code: frozenset({"n"})),
    ),
    Broken(
        rule="pointers that are bases",
        body=f"""cvta.to.global.u64 %d10, %d1; and.b64 %d11, %d10, 64; cvt.u32.u64 %r5, %d11;
        shr.u32 %r5, %r5, 2; mov.u32 %r8, 0; mov.u32 %r9, %r5; {WRITE}""",
        x=64,
        without=("kernel_facts.kernel_code.valued_parameters", nothing),
    ),
    # --- shared and local memory ---
    Broken(
        rule="local memory: where stores go",
        body=f"""{DATA} .local .align 4 .b8 a[8]; st.local.u32 [a], 3; mov.u64 %d10, a;
        mul.wide.u32 %d11, %r4, 4; add.u64 %d10, %d10, %d11; st.local.u32 [%d10], 9;
        ld.local.u32 %r5, [a]; {READ}""",
        without=("footprint.excerpt_state.SliceState.forget_words", lambda self: None),
    ),
)


def program_text(case: Broken) -> str:
    version, arch = case.target.split()
    lines = [f"//! buffer {name} bytes={SIZE} role=state\n" for name in "xyz"]
    ptx = f".version {version}\n.target {arch}\n.address_size 64\n"
    ptx += f"{case.functions}{HEAD}{case.body}\nret;\n}}\n"
    x = f"x+{case.x}" if case.x else "x"
    launch = f"//! launch m.k grid={case.grid},1,1 block={case.block},1,1 args=[{x}, y, z, u32:8]\n"
    return f"//! tessera.trace 1\n{''.join(lines)}//! module m\n{ptx}{launch}"


def faults(case: Broken) -> Iterator[str]:
    """Bytes that are logged and in no region, and certain ones that are not written."""
    program = parse_trace(program_text(case), "trace.ptx")
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    for kind, words in CONTENTS.items():
        with Device() as device:
            kernel = device.load(program.modules[0].variants[0].ptx)["k"]
            x, y, z = (device.array(words, name) for name in "xyz")
            arguments = [x.at(case.x), y.at(0), z.at(0), np.uint32(8)]
            log = kernel.launch(case.grid, case.block, arguments).accesses
        for found in compare(program, step, log):
            where = f"{kind}, {found.buffer.name}"
            if not intervals.covers(found.may_read, found.read):
                yield f"{where}: reads {found.read.tolist()}, not {found.may_read.tolist()}"
            if not intervals.covers(found.may_write, found.written):
                yield f"{where}: writes {found.written.tolist()}, not {found.may_write.tolist()}"
            if not intervals.covers(found.written, found.must_write):
                yield f"{where}: is to write {found.must_write.tolist()}"


def names(cases: tuple[Broken, ...]) -> list[str]:
    return [f"{case.rule} {number}" for number, case in enumerate(cases)]


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_where_the_condition_is_broken_nothing_is_missing(case: Broken) -> None:
    assert list(faults(case)) == []


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_without_the_check_something_is_missing(
    case: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, instead = case.without
    monkeypatch.setattr(f"{PASSES}.{path}".replace(".passes...", "."), instead)
    assert list(faults(case)) != []


# --- launches that share a result ---

SHARED = (
    HEAD
    + """
    setp.eq.u64 %p1, %d1, %d2;
    add.u32 %r5, %r1, %r2;
    @%p1 mov.u32 %r5, 0;
    mul.wide.u32 %d8, %r5, 4;
    add.u64 %d9, %d3, %d8;
    ld.global.u32 %r6, [%d9];
    st.global.u32 [%d6], %r6;
    ret;
}
"""
)
FIRST = "grid=1,1,1 block=32,1,1 args=[x, y, z, u32:8]"
OTHERS = (
    "grid=1,1,1 block=32,1,1 args=[x, y, z, u32:9]",
    "grid=1,1,1 block=32,1,1 args=[x, y, z+64, u32:8]",
    "grid=1,1,1 block=32,1,1 args=[y, y, z, u32:8]",
    "grid=1,1,1 block=32,1,1 args=[x, z, z, u32:8]",
    "grid=1,1,1 block=32,1,1 args=[x, y, short, u32:8]",
    "grid=1,1,1 block=31,1,1 args=[x, y, z, u32:8]",
    "grid=1,1,1 block=32,1,1 args=[z, y, x, u32:8]",
)


def shared(*launches: str) -> list[set[tuple[object, ...]]]:
    """What each launch touches, by buffer, kind and region."""
    lines = [f"//! buffer {name} bytes={SIZE} role=state\n" for name in "xyz"]
    lines.append("//! buffer short bytes=64 role=state\n")
    ptx = f".version 8.0\n.target sm_80\n.address_size 64\n{SHARED}"
    steps = "".join(f"//! launch m.k {launch}\n" for launch in launches)
    text = f"//! tessera.trace 1\n{''.join(lines)}//! module m\n{ptx}{steps}"
    found = AnalysisManager(parse_trace(text, "trace.ptx")).get(AccessRegions).steps
    return [{(a.buffer, a.kind, a.certainty, a.region) for a in step.accesses} for step in found]


@pytest.mark.parametrize("other", OTHERS)
def test_a_launch_after_another_is_as_it_is_alone(other: str) -> None:
    assert shared(FIRST, other)[1] == shared(other)[0]


def test_without_their_key_launches_are_taken_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(program: Any, launch: Any, settings: Any) -> Any:
        buffers = original(program, launch, settings)[0]
        return buffers, (len(buffers),)

    original = import_module(f"{PASSES}.dependences.launch_pattern").launch_pattern
    monkeypatch.setattr(f"{PASSES}.dependences.access_regions.launch_pattern", careless)
    wrong = [other for other in OTHERS if shared(FIRST, other)[1] != shared(other)[0]]
    assert len(wrong) >= 4, wrong


# --- the list ---

ROW = re.compile(r"^\| (?P<rule>[^|]+) \| [^|]+ \| (?P<checks>[^|]+) \| (?P<tests>[^|]+) \|$", re.M)


def rows() -> list[tuple[str, list[str], list[str]]]:
    """The rules of the page, with the functions that check them and their tests."""
    text = PAGE.read_text().partition("## Rules and their conditions")[2].partition("\n## ")[0]
    listed = [
        (row["rule"].strip(), *(re.findall(r"`([^`]+)`", row[key]) for key in ("checks", "tests")))
        for row in ROW.finditer(text)
    ]
    return [row for row in listed if row[0] not in ("Rule", "---")]


def test_every_rule_has_a_check_and_a_test() -> None:
    assert len(rows()) > 30
    for rule, checks, tests in rows():
        assert checks, rule
        assert tests, rule
        for check in checks:
            resolve(f"{PASSES}.{check}")
        for test in tests:
            assert list(ROOT.glob(f"tests/**/{test}.py")), (rule, test)


def test_every_rule_of_this_file_is_listed() -> None:
    here = {rule for rule, _, tests in rows() if "test_rule_conditions" in tests}
    assert {case.rule for case in CASES} | {"launches that share a result"} == here
