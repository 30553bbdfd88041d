"""The judge on launch programs of real kernels: every change is refused, or makes no difference.

Mixes of traces with common states and weights, several slots and lanes, strided transfers, words
that hold addresses, library calls, weights on several devices, parts and twins. How a change that
is accepted is shown to make no difference is in `test_check_plan`.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tessera.driver.load import load
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.launch_program import LoweredReplica
from tessera.ir.program.program import Program, Role
from tessera.passes.checker.check_plan import check_replica
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.divided_plans import divided_steps
from tests.helpers.plan_cases import Case
from tests.helpers.plan_edits import edits
from tests.helpers.plan_mutants import mutants
from tests.helpers.plan_races import races
from tests.helpers.plan_simulator import differs
from tests.helpers.served import graph_of
from tests.helpers.share import share
from tests.helpers.traces import COPY, HEADER
from tests.property.test_check_plan import NEVER

TRACES = Path(__file__).parents[2] / "examples" / "traces"
# y[i] = a[i] + b[i] for every second element, where `table` has the addresses of a and b.
FOLLOW = """
.visible .entry follow(.param .u64 y, .param .u64 table)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [table];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 8;
    ld.global.u64 %rd4, [%rd2];
    ld.global.u64 %rd5, [%rd2+8];
    add.s64 %rd4, %rd4, %rd3;
    add.s64 %rd5, %rd5, %rd3;
    ld.global.u32 %r2, [%rd4];
    ld.global.u32 %r3, [%rd5];
    add.u32 %r2, %r2, %r3;
    add.s64 %rd6, %rd1, %rd3;
    st.global.u32 [%rd6], %r2;
    ret;
}
"""
BUFFERS = """//! tessera.trace 1
//! buffer x bytes=256 role=input dtype=u32 shape=64
//! buffer w bytes=256 role=weight
//! buffer v bytes=512 role=weight
//! buffer s bytes=512 role=state
//! buffer t bytes=256 role=temp
//! buffer u bytes=256 role=temp
//! buffer y bytes=256 role=output
"""
PREFILL = """//! pointers t @{0:s+256,8:w}
//! memcpy s x bytes=256
//! launch m.follow grid=1,1,1 block=24,1,1 args=[s+256, t]
//! launch m.copy grid=1,1,1 block=64,1,1 args=[u, v, u32:64]
//! launch m.follow grid=1,1,1 block=32,1,1 args=[u, t]
//! memcpy y u bytes=256
//! op aten::add.Tensor reads=[u+64:s32[8,2]{6,1}, v:s32[8,2]] writes=[y:s32[8,2]{4,1}] attrs={}
"""
DECODE = """//! memset t bytes=256 value=7
//! launch m.copy grid=1,1,1 block=32,1,1 args=[t, s+128, u32:20]
//! launch m.copy grid=1,1,1 block=64,1,1 args=[y, w, u32:64]
//! memcpy s+64 t bytes=32
//! op aten::add.Tensor reads=[t:s32[8,2]{6,1}, v+256:s32[8,2]] writes=[u:s32[8,2]{4,1}] attrs={}
//! memcpy y+16 u bytes=100
"""


def small(steps: str) -> Program:
    records = [line for line in steps.splitlines() if line.startswith("//! pointers")]
    rest = [line for line in steps.splitlines() if not line.startswith("//! pointers")]
    head = BUFFERS + "".join(f"{line}\n" for line in records)
    text = f"{head}//! module m\n{HEADER}{COPY}{FOLLOW}" + "".join(f"{line}\n" for line in rest)
    return parse_trace(text, "trace.ptx")


@cache
def programs(name: str) -> tuple[Program, ...]:
    match name:
        case "mix":
            return (small(PREFILL), small(DECODE))
        case "prefill":
            return (small(PREFILL),)
        case "divided":
            return (divided_steps(),)
        case _:
            return (load(TRACES / f"{name}.ptx"),)


def lowered(name: str, seed: int, slots: int, lanes: int) -> tuple[Case, LoweredReplica]:
    found = programs(name)
    graphs = tuple(graph_of(program) for program in found)
    rng = random.Random(seed)
    places = tuple(_placed(program, rng) for program in found)
    replica = lower_replica(found, graphs, places, slots=slots, lanes=lanes, roomy="ab"[: seed % 3])
    return Case(found, graphs, places), replica


def _placed(program: Program, rng: random.Random) -> tuple[str, ...]:
    """A device for each step; twins are on different ones."""
    places = {int(work.id): rng.choice("abc") for work in program.work()}
    for group in program.twins:
        places |= dict(zip(group, rng.sample("abc", len(group)), strict=True))
    return tuple(places.values())


@pytest.mark.parametrize(
    ("name", "seed", "slots", "lanes", "most"),
    [
        ("divided", 5, 2, 2, 60),
        ("mix", 1, 2, 3, 200),
        ("mix", 2, 3, 1, 120),
        ("prefill", 3, 1, 2, 120),
        ("mlp", 4, 2, 2, 30),
        *(
            pytest.param(name, seed, seed % 3 + 1, seed % 2 + 1, 10**9, marks=pytest.mark.slow)
            for name in ("mix", "prefill", "divided")
            for seed in range(10, 15)
        ),
    ],
)
def test_every_change_is_refused_or_makes_no_difference(
    name: str, seed: int, slots: int, lanes: int, most: int
) -> None:
    case, replica = lowered(name, seed, slots, lanes)
    assert check_replica(replica, case.programs, case.graphs, case.placements) == ()
    assert races(replica, case.programs, case.graphs) == ""
    assert differs(replica, case.programs, case.graphs, 10) == ""
    every = [*mutants(replica, case.programs), *edits(replica, case.programs)]
    verdicts: Counter[bool] = Counter()
    for what, mutant in share(random.Random(seed).sample(every, min(most, len(every)))):
        refused = bool(check_replica(mutant, case.programs, case.graphs, case.placements))
        verdicts[refused] += 1
        if not refused:
            assert what.split()[0] not in NEVER, what
            assert races(mutant, case.programs, case.graphs) == "", what
            assert differs(mutant, case.programs, case.graphs, 10, replica) == "", what
    assert verdicts[True] > 0.6 * verdicts.total()


def test_what_the_cases_have() -> None:
    """Strided transfers, words, library calls, weights and states on several devices."""
    case, replica = lowered("mix", 1, 2, 3)
    assert any(
        len(portion.bytes) > 2
        for one in replica.traces
        for t in one.transfers
        for portion in t.portions
    )
    assert any(program.pointer_tables for program in case.programs)
    where: dict[str, set[str]] = {}
    for place in replica.places:
        buffer = case.programs[place.trace].buffers[place.buffer]
        where.setdefault(buffer.name, set()).add(place.device)
        assert buffer.role is not Role.VARIABLE
    assert len(where["v"]) > 1
    assert len(where["w"] | where["v"]) > 1
    assert len(where["s"]) > 1
