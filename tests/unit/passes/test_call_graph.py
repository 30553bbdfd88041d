"""Facts about all that a function calls."""

from __future__ import annotations

import random

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx.flatten import flatten
from tessera.passes.kernel_facts.call_graph import call_reach, closed_names, components, gather


def reached(calls: dict[str, list[str]], name: str) -> set[str]:
    found, pending = {name}, [name]
    while pending:
        for callee in calls[pending.pop()]:
            if callee in calls and callee not in found:
                found.add(callee)
                pending.append(callee)
    return found


def random_calls(chance: random.Random) -> dict[str, list[str]]:
    names = [f"f{i}" for i in range(chance.randint(1, 9))]
    return {n: chance.choices([*names, "outside"], k=chance.randint(0, 3)) for n in names}


def test_everything_that_is_reached_is_gathered() -> None:
    chance = random.Random(11)
    for _ in range(500):
        calls = random_calls(chance)
        own = {name: [name] for name in calls}
        assert gather(calls, own) == {name: reached(calls, name) for name in calls}


def test_components_hold_circles_and_come_callees_first() -> None:
    chance = random.Random(12)
    for _ in range(500):
        calls = random_calls(chance)
        groups = [set(group) for group in components(calls)]
        assert sorted(name for group in groups for name in group) == sorted(calls)
        done: set[str] = set()
        for group in groups:
            done |= group
            for name in group:
                assert reached(calls, name) <= done
                assert group == {o for o in reached(calls, name) if name in reached(calls, o)}


def test_closed_names_are_those_that_reach_only_names() -> None:
    chance = random.Random(13)
    for _ in range(500):
        calls = random_calls(chance)
        closed = {
            name
            for name in calls
            if all(c in calls for other in reached(calls, name) for c in calls[other])
        }
        assert closed_names(calls) == closed


def test_a_chain_shares_one_set() -> None:
    calls = {f"f{i}": [f"f{i - 1}"] for i in range(20_000)}
    found = gather(calls, {"f0": ["a"]})
    assert found["f19999"] == {"a"}
    assert len({id(one) for one in found.values()}) == 1
    assert closed_names(calls) == frozenset()


CALLS = """.version 8.6
.target sm_90a
.address_size 64
.func plain(.param .b64 a);
.func loads(.param .b64 a);
.func passes(.param .b64 a);
TABLE
.func plain(.param .b64 a)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [a];
    st.global.u64 [%rd1], %rd1;
    ret;
}
.func loads(.param .b64 a)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [a];
    ld.global.u64 %rd2, [%rd1];
    st.global.u64 [%rd2], %rd1;
    ret;
}
.func passes(.param .b64 a)
{
    .reg .b64 %rd<4>;
    .param .b64 b;
    ld.param.u64 %rd1, [a];
    st.param.b64 [b], %rd1;
    mov.u64 %rd2, plain;
    CALL
    call passes, (b);
    ret;
}
.visible .entry k(.param .u64 y)
{
    .reg .b64 %rd<4>;
    .param .b64 b;
    ld.param.u64 %rd1, [y];
    st.param.b64 [b], %rd1;
    call passes, (b);
    ret;
}
"""
THROUGH = "prototype: .callprototype _ (.param .b64 _); call %rd2, (b), prototype;"


@pytest.mark.parametrize(
    ("table", "call", "is_bounded"),
    [
        ("", "", True),
        ("", "call plain, (b);", True),
        ("", "call loads, (b);", False),
        ("", THROUGH, True),
        ("", f"mov.u64 %rd2, loads; {THROUGH}", False),
        (".global .u64 t = plain;", f"mov.u64 %rd2, loads; {THROUGH}", False),
        (".global .u64 t = loads;", THROUGH, False),
    ],
)
def test_calls_that_reach_code_that_loads_addresses(
    table: str, call: str, is_bounded: bool
) -> None:
    module = parse_module(CALLS.replace("TABLE", table).replace("CALL", call), "t.ptx")
    kernel = next(f for f in module.functions() if f.name == "k")
    assert ("passes" in call_reach(module, flatten(kernel)).bounded) is is_bounded


TENSOR = "shared::cluster.global.tile.mbarrier::complete_tx::bytes"
AGAIN = """.version 8.6
.target sm_90a
.address_size 64
.func own(.param .b64 a) { call own, (a); }
.func wild(.param .b64 a) { trap; call wild, (a); st.global.u32 [0], 1; }
.func f(.param .b64 a)
{
    .reg .b64 %d<4>;
    .reg .b32 %r<4>;
    .shared .b32 sh;
    .local .b32 l;
    LINE
    call f, (a);
}
.visible .entry k(.param .u64 y) { .param .b64 b; call f, (b); }
"""


@pytest.mark.parametrize(
    ("line", "is_quiet"),
    [
        ("", True),
        ("st.shared.u32 [sh], 1; st.local.u32 [l], 1; ld.param.u64 %d1, [a];", True),
        ("add.u64 %d1, %d2, 5;", True),
        ("call own, (a);", True),
        ("call wild, (a);", False),
        ("st.global.u32 [%d1], 1;", False),
        ("ld.global.u32 %r1, [%d1];", False),
        ("st.u32 [%d1], 1;", False),
        ("_odd.b32 5;", False),
        (f"cp.async.bulk.tensor.1d.{TENSOR} [sh], [%d1, {{%r1}}], [sh];", False),
    ],
)
def test_functions_that_touch_only_memory_of_their_own(line: str, is_quiet: bool) -> None:
    module = parse_module(AGAIN.replace("LINE", line), "t.ptx")
    assert ("f" in call_reach(module, flatten(module.definitions()["k"])).quiet) is is_quiet
