"""The draw of seeds is what PyTorch's generator draws on a GPU, and its state is state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.driver.trace.build import draft_program, settle_roles
from tessera.driver.trace.random_draws import check_drawn, state_bytes
from tessera.frontend.capture.raw import (
    RawBuffer,
    RawCapture,
    RawLaunch,
    RawOperator,
    RawRandom,
    RawTensor,
)
from tessera.frontend.contents.write import write_contents
from tessera.ir.program.data_type import DataType
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import Launch, Program, Role
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences

# Recorded on an H200 with torch 2.11: two draws in one graph, seed 5, offset 48.
FIRST = (-1323669587798335437, 4374034674573412792, -7526697125881710452)
SECOND = (5983157512764656317, -576472771633447900, 647314663406891680)
ALL = (("low", -(2**63)), ("high", 2**63 - 1), ("size", (3,)))
START = 0x7F0000000000


def operator(node: int, address: int, name: str = "aten::randint.low_out") -> RawOperator:
    out = RawTensor(address=address, dtype=DataType.S64, shape=(3,), strides=(1,))
    return RawOperator(
        operator=name, reads=(), writes=(out,), attributes=ALL, first=node, last=node + 1
    )


def capture(*operators: RawOperator, random: bool = True) -> RawCapture:
    kernel = RawLaunch(
        name="distribution",
        function=99,
        grid=(1, 1, 1),
        block=(256, 1, 1),
        shared_bytes=0,
        arguments=(),
    )
    buffers = tuple(
        RawBuffer(
            name=name,
            address=START + 256 * n,
            bytes=24,
            role=Role.OUTPUT,
            lasting=False,
            dtype=DataType.S64,
            shape=(3,),
        )
        for n, name in enumerate(("a", "b"))
    )
    return RawCapture(
        buffers=buffers,
        nodes=(kernel,) * len(operators),
        operators=operators,
        codes=(),
        random=RawRandom(seed=5, offset=48) if random else None,
        after=tuple(() for _ in operators),
    )


def program_of(raw: RawCapture) -> tuple[Program, str | None, int]:
    draft = draft_program(raw)
    return settle_roles(draft, raw), draft.random, draft.draws


def test_two_draws_give_what_the_gpu_gave(tmp_path: Path) -> None:
    raw = capture(operator(0, START), operator(1, START + 256))
    program, name, draws = program_of(raw)
    assert (name, draws) == ("random_state", 2)
    assert raw.random is not None
    state = next(b for b in program.buffers if b.name == name)
    assert state.role is Role.STATE
    write_contents(tmp_path / "t.npz", [(state, state_bytes(raw.random))])
    text = print_program(program).replace("//! module", "//! resident data=t.npz\n//! module", 1)
    (tmp_path / "t.ptx").write_text(text)
    report = run_trace(tmp_path / "t.ptx", RunOptions())
    found = {buffer.name: data.reshape(-1).view(np.uint8) for buffer, data in report.kept()}
    assert tuple(found["a"].view(np.int64)) == FIRST
    assert tuple(found["b"].view(np.int64)) == SECOND
    assert found["random_state"].tolist() == state_bytes(raw.random, 8).tolist()
    assert tuple(state_bytes(raw.random, 8).view(np.uint64)) == (5, 56)


def test_draws_take_turns_although_the_graph_does_not_order_them() -> None:
    """On two streams in the graph; the state makes the second wait for the first."""
    program, _, _ = program_of(capture(operator(0, START), operator(1, START + 256)))
    facts = AnalysisManager(program).get(Dependences)
    assert facts.diagnostics == ()
    assert (0, 1) in {(edge.source, edge.target) for edge in facts.graph.edges}
    assert [type(step) for step in program.work()] == [Launch, Launch]


@pytest.mark.parametrize(
    "change",
    [{"name": "aten::rand"}, {"name": "aten::native_dropout"}, {"name": "aten::normal_"}],
)
def test_other_ways_to_draw_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(TesseraError) as caught:
        draft_program(capture(operator(0, START, **change)))
    assert caught.value.diagnostics[0].code == "TSR6002"


def test_a_range_of_the_models_own_is_no_draw_of_seeds() -> None:
    raw = capture(operator(0, START))
    given = (("low", 0), ("high", 10), ("size", (3,)))
    raw = replace(raw, operators=(replace(raw.operators[0], attributes=given),))
    with pytest.raises(TesseraError):
        draft_program(raw)


def test_the_generator_must_move_as_the_draws_say() -> None:
    check_drawn(8, 2)
    check_drawn(0, 0)
    for drawn, draws in ((4, 0), (8, 1), (0, 1)):
        with pytest.raises(TesseraError) as caught:
            check_drawn(drawn, draws)
        assert caught.value.diagnostics[0].code == "TSR6002"
