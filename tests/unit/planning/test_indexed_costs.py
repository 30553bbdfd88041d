"""What is looked up in a table is priced by what threads ask for, not by the table."""

from __future__ import annotations

import pytest

from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.costs import Duration, StepCosts
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.estimate_costs import estimate_costs

ROWS, WIDTH, OUT = 8192, 256, 65536

# Thread n sums up column n of `w` times `x`, and adds element n of a row of `table`: the first, or
# the one that `ids` says. The sum goes to a row of `y`: the first, or the one that `ids` says.
KERNEL = """
.version 8.4
.target sm_80
.address_size 64
.visible .entry {name}(.param .u64 x, .param .u64 ids, .param .u64 w, .param .u64 y,
    .param .u64 table)
{{
.reg .pred %p; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<16>;
ld.param.u64 %d1, [x]; ld.param.u64 %d2, [ids]; ld.param.u64 %d3, [w]; ld.param.u64 %d4, [y];
ld.param.u64 %d7, [table];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 128, %r2;
mul.wide.u32 %d5, %r3, 4; add.s64 %d3, %d3, %d5; add.s64 %d4, %d4, %d5;
add.s64 %d7, %d7, %d5;
ld.global.u32 %r4, [%d2]; min.u32 %r4, %r4, {last}; mul.wide.u32 %d6, %r4, {stride};
{gather}
{scatter}
mov.u32 %r5, 0; ld.global.f32 %f1, [%d7];
LOOP:
ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d3]; fma.rn.f32 %f1, %f2, %f3, %f1;
add.s64 %d1, %d1, 4; add.s64 %d3, %d3, {column}; add.u32 %r5, %r5, 1;
setp.lt.u32 %p, %r5, {width}; @%p bra LOOP;
st.global.f32 [%d4], %f1;
ret;
}}
"""


def costs(gather: bool, scatter: bool) -> StepCosts:
    kernel = KERNEL.format(
        name="k",
        gather="add.s64 %d7, %d7, %d6;" if gather else "",
        scatter="add.s64 %d4, %d4, %d6;" if scatter else "",
        last=ROWS - 1,
        stride=4 * OUT,
        column=4 * OUT,
        width=WIDTH,
    )
    table = 4 * ROWS * OUT
    records = (
        "tessera.trace 1",
        f"buffer x bytes={4 * WIDTH} role=weight",
        "buffer ids bytes=4 role=input",
        f"buffer w bytes={4 * WIDTH * OUT} role=weight",
        f"buffer y bytes={table if scatter else 4 * OUT} role=output",
        f"buffer table bytes={table if gather else 4 * OUT} role=weight",
        "module m",
    )
    launch = f"//! launch m.k grid={OUT // 128},1,1 block=128,1,1 args=[x, ids, w, y, table]\n"
    text = "".join(f"//! {record}\n" for record in records) + kernel + launch
    program = parse_trace(text)
    graph = AnalysisManager(program).get(Dependences).graph
    return estimate_costs(program, graph, machine_of("h100")).steps[0]


@pytest.mark.parametrize(("gather", "scatter"), [(True, False), (False, True), (True, True)])
def test_a_row_that_is_looked_up_is_priced_as_a_row(gather: bool, scatter: bool) -> None:
    plain, found = costs(False, False), costs(gather, scatter)
    assert plain.work is not None
    assert found.work is not None
    assert plain.work.indexed_bytes == 0
    asked = 4 * OUT * (gather + scatter)  # by each thread one element
    assert found.work.indexed_bytes == pytest.approx(asked, rel=1e-6)
    (one,), (other,) = plain.on_device, found.on_device
    assert isinstance(one, Duration)
    assert isinstance(other, Duration)
    assert other.ns == pytest.approx(one.ns, rel=0.02)
    assert found.memory_bytes == pytest.approx(plain.memory_bytes, rel=0.02)
