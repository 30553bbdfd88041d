"""Words that hold addresses and are overwritten: what launches touch, against the log of the CPU.

Every request of a lane is looked at, because states carry what a request has left in such words.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.backend.processes.reference import Reference
from tessera.backend.ptx_executor.run import OneDevice
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.ir.graph.access import Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.access_oracle import compare
from tests.helpers.served import Ask, inputs_of, model_of
from tests.helpers.share import share
from tests.helpers.traces import trace
from tests.helpers.word_traces import swap_trace, word_trace

HEAD = """
buffer a bytes=64 role=output
buffer q bytes=64 role=output
buffer d bytes=64 role=input
"""
PARAMETERS = "(.param .u64 t, .param .u64 u, .param .u64 q)"


def kernel(body: str, name: str = "k") -> str:
    return f"""
.visible .entry {name}{PARAMETERS}
{{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [t];
    ld.param.u64 %rd2, [u];
    ld.param.u64 %rd3, [q];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    {body}
    ret;
}}
"""


def check(program: ir.Program, requests: int = 3) -> None:
    """In every request each launch stays inside its may regions and writes its must regions."""
    steps = AnalysisManager(program).get(AccessRegions).steps
    nodes = [["a"] * len(steps)]
    model = model_of([program], nodes, slots=1, filled=True)
    reference = Reference(model.traces, model.weights, model.states, model.fillings)
    number = 0

    def look(step: ir.Work, result: LaunchResult | None, machine: OneDevice) -> None:
        if not isinstance(step, ir.Launch) or result is None:
            return
        log = tuple(replace(one, buffer=one.buffer.removeprefix("m.")) for one in result.accesses)
        for found in compare(program, steps[step.id], log):
            where = f"{found.buffer.name} in step {step.id} of request {number}"
            assert intervals.covers(found.may_read, found.read), where
            assert intervals.covers(found.may_write, found.written), where
            assert intervals.covers(found.written, found.must_write), where

    for number in range(requests):
        reference.run(inputs_of(model, Ask(number)), on_step=look)


def analysed(program: ir.Program) -> list[dict[str, str]]:
    """Per step how sure its writes are, by buffer; `pinned` says that it may touch anything."""
    found = []
    for step in AnalysisManager(program).get(AccessRegions).steps:
        row = {"pinned": "; ".join(str(pin.reason) for pin in step.pins)}
        for access in step.accesses:
            name = program.buffers[access.buffer].name
            if access.kind.writes and row.get(name) != "must":
                row[name] = "must" if access.certainty is Certainty.MUST else "may"
        found.append(row)
    return found


FOLLOW = "ld.global.u64 %rd4, [%rd1]; st.global.u32 [%rd4], 7;"
BULK = ".shared .align 16 .b8 s[16];"
STORES = {
    "plain": f"st.global.u64 [%rd1], %rd3; {FOLLOW}",
    "after": f"{FOLLOW} st.global.u64 [%rd1], %rd3;",
    "half": f"st.global.u32 [%rd1+4], 0; {FOLLOW}",
    "byte of it": f"st.global.u8 [%rd1+7], 0; {FOLLOW}",
    "another argument": f"st.global.u64 [%rd2], %rd3; {FOLLOW}",
    "generic": f"st.u64 [%rd1], %rd3; {FOLLOW}",
    "vector": f"st.global.v2.u64 [%rd1], {{%rd3, %rd3}}; {FOLLOW}",
    "atomic": f"atom.global.exch.b64 %rd5, [%rd1], %rd3; {FOLLOW}",
    "reduction": f"red.global.add.u64 [%rd1], 0; {FOLLOW}",
    "one thread": f"setp.eq.u32 %p1, %r1, 1; @%p1 st.global.u64 [%rd1], %rd3; {FOLLOW}",
    "one block": f"setp.eq.u32 %p1, %r2, 1; @%p1 st.global.u64 [%rd1], %rd3; {FOLLOW}",
    "if data says so": (
        "ld.global.u32 %r3, [%rd3]; setp.eq.u32 %p1, %r3, 1;"
        f"@%p1 st.global.u64 [%rd1], %rd3; {FOLLOW}"
    ),
    "through itself": (
        # p = t[1], which is t itself: *p = q; then t[0] is followed.
        f"ld.global.u64 %rd5, [%rd1+8]; st.global.u64 [%rd5], %rd3; {FOLLOW}"
    ),
    "discarded": f"discard.global.L2 [%rd1], 128; {FOLLOW}",
    "bulk copy": f"{BULK} cp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], 16; {FOLLOW}",
    "bulk reduction": (
        f"{BULK} cp.reduce.async.bulk.global.shared::cta.bulk_group.or.b64 [%rd1], [s], 16;{FOLLOW}"
    ),
}


@pytest.mark.parametrize("how", STORES)
@pytest.mark.parametrize("role", ["state", "temp", "output"])
def test_a_launch_does_not_trust_words_that_it_overwrites(how: str, role: str) -> None:
    """The table is argument twice (`u` is `t` again); a store to any part of a word spoils it."""
    buffers = HEAD + f"buffer t bytes=128 role={role}\npointers t @{{0:a,8:t}}\n"
    steps = "launch m.k grid=2,1,1 block=2,1,1 args=[t, t, q]"
    program = trace(buffers, kernel(STORES[how]), steps)
    (found,) = analysed(program)
    assert found.get("a") != "must"
    assert "comes from memory" in found["pinned"]
    assert "may overwrite pointers in `t`" in found["pinned"]
    if how not in {"half", "byte of it", "discarded", "bulk copy", "bulk reduction"}:
        check(program)


def test_a_word_that_nothing_overwrites_is_still_exact() -> None:
    buffers = HEAD + "buffer t bytes=64 role=state\npointers t @{0:a}\n"
    body = f"st.global.u64 [%rd1+8], %rd3; {FOLLOW}"
    program = trace(buffers, kernel(body), "launch m.k grid=1,1,1 block=1,1,1 args=[t, t, q]")
    assert analysed(program) == [{"pinned": "", "t": "must", "a": "must"}]
    check(program)


@pytest.mark.parametrize("place", [4, 16])
def test_a_number_next_to_a_word_is_an_index(place: int) -> None:
    """A part of the word itself is none."""
    buffers = HEAD + "buffer t bytes=64 role=input\npointers t @{8:a}\n"
    steps = "launch m.k grid=1,1,1 block=1,1,1 args=[t, a, q]"

    def found(place: int) -> dict[str, str]:
        body = (
            f"ld.global.u32 %r3, [%rd1+{place}]; mul.wide.u32 %rd5, %r3, 4;"
            "add.u64 %rd6, %rd3, %rd5; st.global.u32 [%rd6], 7;"
        )
        return analysed(trace(buffers, kernel(body), steps))[0]

    assert found(place) == {"pinned": "", "q": "may"}
    assert found(8)["pinned"]


@pytest.mark.parametrize(
    "writer",
    [
        "launch m.set grid=1,1,1 block=1,1,1 args=[t, t, q]",
        "memcpy t+4 d bytes=4",
        "memset t bytes=1 value=0",
        "op aten::copy_ reads=[d:u8[8]] writes=[t:u8[8]]",
    ],
)
@pytest.mark.parametrize("role", ["state", "temp", "output", "input"])
@pytest.mark.parametrize("first", [True, False])
def test_a_word_that_another_step_overwrites(writer: str, role: str, first: bool) -> None:
    """An earlier step spoils it; in a state a later one does too, by way of the next request."""
    buffers = HEAD + f"buffer t bytes=64 role={role}\npointers t @{{0:a}}\n"
    kernels = kernel(FOLLOW) + kernel("st.global.u64 [%rd1], %rd3;", "set")
    follow = "launch m.k grid=1,1,1 block=1,1,1 args=[t, t, q]"
    steps = (writer, follow) if first else (follow, writer)
    found = analysed(trace(buffers, kernels, "\n".join(steps)))
    row = found[1 if first else 0]
    if first or role == "state":
        assert row.get("a") == "may"
        assert "comes from memory" in row["pinned"]
    else:
        assert row == {"pinned": "", "a": "must"}
    told = [one for one in found if "may overwrite pointers in `t`" in one["pinned"]]
    assert len(told) == 1, "the first step that may"


def test_an_index_from_data_finds_what_was_stored() -> None:
    """t[i] may be a word that an earlier launch put there, not only one of the record."""
    buffers = HEAD + "buffer t bytes=64 role=temp\npointers t @{0:a,8:a}\n"
    gather = (
        "ld.global.u32 %r3, [%rd2]; and.b32 %r3, %r3, 3; mul.wide.u32 %rd5, %r3, 8;"
        "add.u64 %rd6, %rd1, %rd5; ld.global.u64 %rd4, [%rd6]; st.global.u32 [%rd4], 7;"
    )
    kernels = kernel(gather) + kernel("st.global.u64 [%rd1+16], %rd3;", "set")
    follow = "launch m.k grid=1,1,1 block=1,1,1 args=[t, d, q]"
    store = "launch m.set grid=1,1,1 block=1,1,1 args=[t, t, q]"
    alone = analysed(trace(buffers, kernels, follow))
    assert alone == [{"pinned": "", "a": "may"}]
    after = analysed(trace(buffers, kernels, f"{store}\n{follow}"))
    assert after[1]["q"] == "may"
    assert "comes from memory" in after[1]["pinned"]


def test_a_variable_with_pointers_that_a_step_overwrites() -> None:
    variables = ".global .align 8 .b8 x[64]; .global .align 8 .u64 v[2] = {x, x};"
    body = "mov.u64 %rd1, v; st.global.u64 [%rd1], %rd3; ld.global.u64 %rd4, [%rd1];"
    program = trace(
        HEAD,
        variables + kernel(f"{body} st.global.u32 [%rd4], 7;"),
        "launch m.k grid=1,1,1 block=1,1,1 args=[a, a, q]",
    )
    (found,) = analysed(program)
    assert found["m.x"] == "may"
    assert found["q"] == "may"
    check(program)


def test_states_carry_what_a_request_leaves() -> None:
    """Requests count in `a` and `b` by turns; each launch is inside its regions in all of them."""
    program = swap_trace()
    rows = analysed(program)
    assert rows[0]["a"] == rows[0]["b"] == "may"
    assert rows[0]["pinned"]
    check(program, 4)


def test_what_is_put_anew_is_not_carried() -> None:
    """A table that is private to a request is there again in the next one."""
    rows = analysed(swap_trace("temp"))
    assert rows[0] == {"pinned": "", "a": "must"}
    check(swap_trace("temp"), 4)


def test_some_programs() -> None:
    """How much is pinned, and how much of each buffer may be touched, is recorded."""
    for seed in share(range(130)):
        check(word_trace(seed), 2)


@given(st.integers(0, 1 << 32))
def test_any_program(seed: int) -> None:
    check(word_trace(seed), 3)
