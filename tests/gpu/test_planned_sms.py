"""`tessc run` on an H200: a plan for a slice of it has the SMs of a slice, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.backend.cuda.doctor import check_machine
from tests.helpers.command import tessc

MACHINE = check_machine()
IS_H200 = any("H200" in gpu.facts.name for gpu in MACHINE.gpus)
BLOCKS = 4224

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not IS_H200, reason=f"no H200: {MACHINE.problem or 'another GPU'}"),
]

TRACE = f"""\
//! tessera.trace 1
//! buffer y bytes={4 * BLOCKS} role=output dtype=u32
//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry where(.param .u64 y)
{{
    .reg .b64 %d<4>;
    .reg .b32 %r<4>;
    mov.u32 %r1, 20000;
    nanosleep.u32 %r1;
    ld.param.u64 %d1, [y];
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d3, %d1, %d2;
    mov.u32 %r3, %smid;
    st.global.u32 [%d3], %r3;
    ret;
}}
//! launch m.where grid={BLOCKS},1,1 block=1024,1,1 args=[y]
"""


@pytest.mark.parametrize(("gpus", "sms"), [("h200:48sm", 48), ("h200:84sm", 84), ("h200", 132)])
def test_a_plan_runs_on_the_sms_that_it_was_made_for(tmp_path: Path, gpus: str, sms: int) -> None:
    trace, plan, outputs = tmp_path / "t.ptx", tmp_path / "p.tsp", tmp_path / "out.npz"
    trace.write_text(TRACE)
    assert tessc("plan", str(trace), "--gpus", gpus, "--slots", "1", "-o", str(plan)).code == 0
    done = tessc("run", str(plan), "--requests", "2", "--outputs", str(outputs))
    assert done.code == 0, done.err
    with np.load(outputs) as arrays:
        used = [len(np.unique(row)) for row in arrays["y"]]
    assert used == [sms, sms]
