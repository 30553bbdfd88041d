"""Instructions that change memory and need not write every byte: they end no dependence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.graph.graph import EdgeKind
from tests.helpers import traces
from tests.helpers.traces import COPY, dependences, trace

FORMS = Path(__file__).resolve().parents[1] / "data" / "opcodes" / "memory_forms.txt"
BUFFERS = """
buffer x bytes=1024 role=input
buffer y bytes=1024 role=temp
buffer z bytes=1024 role=output
"""
KERNEL = """
.visible .entry k(.param .u64 y)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    .shared .align 128 .b8 s[256];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 128;
    add.u64 %rd3, %rd1, %rd2;
    {}
    ret;
}}
"""
LEAVES_ALONE = {
    "discard": "discard.global.L2 [%rd3], 128;",
    "discard, generic": "discard.L2 [%rd3], 128;",
    "atomic minimum": "atom.global.min.u32 %r2, [%rd3], 7;",
    "reduction": "red.global.max.u32 [%rd3], 7;",
    "compare and swap": "atom.global.cas.b32 %r2, [%rd3], 0, 7;",
    "masked copy": "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd3], [s], 16, 5;",
    "bulk reduction": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd3], [s], 16;",
    "map": "tensormap.replace.tile.rank.global.b1024.b32 [%rd3], 1;",
}
WRITES_NOTHING = {
    "prefetch": "prefetch.global.L2 [%rd3];",
    "priority": "applypriority.global.L2::evict_normal [%rd3], 128;",
    "bulk prefetch": "cp.async.bulk.prefetch.L2.global [%rd3], 128;",
}


def steps_of(body: str) -> str:
    return f"""
    launch m.copy grid=1,1,1 block=256,1,1 args=[y, x, u32:256]
    launch m.{body} grid=1,1,1 block=8,1,1 args=[y]
    launch m.copy grid=1,1,1 block=256,1,1 args=[z, y, u32:256]
    """


@pytest.mark.parametrize("how", LEAVES_ALONE)
def test_a_reader_still_depends_on_the_writer_before(how: str) -> None:
    program = trace(BUFFERS, COPY + KERNEL.format(LEAVES_ALONE[how]), steps_of("k"))
    graph = dependences(program).graph
    sure = [a for a in graph.nodes[1].accesses if a.certainty is Certainty.MUST and a.kind.writes]
    assert sure == []
    assert any(a.kind is AccessKind.ATOMIC for a in graph.nodes[1].accesses)
    raw = {(int(e.source), int(e.target)) for e in graph.edges if e.kind is EdgeKind.RAW}
    assert {(0, 1), (1, 2), (0, 2)} <= raw


@pytest.mark.parametrize("how", WRITES_NOTHING)
def test_hints_write_nothing(how: str) -> None:
    program = trace(BUFFERS, COPY + KERNEL.format(WRITES_NOTHING[how]), steps_of("k"))
    graph = dependences(program).graph
    assert not any(a.kind.writes for a in graph.nodes[1].accesses)
    assert {(int(e.source), int(e.target)) for e in graph.edges if e.kind is EdgeKind.RAW} == {
        (0, 2)
    }


def test_discarded_bytes_stay_on_the_cpu_as_on_a_gpu() -> None:
    program = trace(BUFFERS, COPY + KERNEL.format(LEAVES_ALONE["discard"]), steps_of("k"))
    given = np.arange(1024, dtype=np.uint16).view(np.uint8)[:1024]
    found = run_program(program, {"x": given}).buffers["z"]
    np.testing.assert_array_equal(found, given)


# What surely writes every byte of its extent in memory that outlives a CTA, by the ISA's words.
WRITES_EVERY_BYTE = {
    "st",
    "st.async",
    "multimem.st",
    "multimem.st.async",
    "wmma.store",
    "cp.async.bulk",
    "multimem.cp.async.bulk",
    "tensormap.cp_fenceproxy",
    "fabric.try_put",
    "fabric.try_get",
}


def test_what_counts_as_writing_every_byte() -> None:
    """A row that claims it has to be put on the list by hand."""
    found = set()
    for line in FORMS.read_text().splitlines():
        form, _, effects = line.partition(" => ")
        for effect in effects.split(", "):
            words = effect.split()
            lasting = len(words) > 2 and words[2] in {"global", "generic", "fabric"}
            if lasting and words[1] in {"write", "async_write"}:
                opcode = form.split()[0]
                assert "cp_mask" not in opcode, form
                names = [n for n in WRITES_EVERY_BYTE if opcode == n or opcode.startswith(f"{n}.")]
                assert names, f"does `{form}` write every byte, whatever happens?"
                found.add(max(names, key=len))
    assert {"st", "wmma.store", "cp.async.bulk"} <= found


@pytest.mark.parametrize(
    ("extra", "ends"),
    [
        ("", True),
        (
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
            "[s], [s+16];",
            False,
        ),
    ],
)
def test_a_block_that_may_keep_others_from_starting(
    extra: str, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cancelled writes nothing, and nobody has to do its work."""
    stores = "".join(f"st.global.u32 [%rd3+{4 * word}], 7;" for word in range(32))
    monkeypatch.setattr(traces, "HEADER", ".version 8.8\n.target sm_100\n.address_size 64\n")
    graph = dependences(trace(BUFFERS, COPY + KERNEL.format(extra + stores), steps_of("k"))).graph
    written = [a for a in graph.nodes[1].accesses if a.kind is AccessKind.WRITE]
    assert {a.certainty for a in written} == ({Certainty.MUST} if ends else {Certainty.MAY})
    raw = {(int(e.source), int(e.target)) for e in graph.edges if e.kind is EdgeKind.RAW}
    assert ((0, 2) in raw) is not ends
