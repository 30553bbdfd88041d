"""`tessc plan --cut` and `--twin`: the user's own division, and one error for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.division import Cut, Division, Twin
from tests.helpers.command import tessc

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


def test_steps_are_divided_as_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "plan.tsp"
    asked = ("--cut", "linear:x=0.6@a100,0.4@l40s", "--twin", "relu", "--cut", "#0:bytes=1,3")
    common = ("plan", str(MLP), "--gpus", "a100,l40s", *asked, "-o", str(target))
    outcome = tessc(*common)
    assert outcome.code == 0, outcome.err
    assert "m0.linear: a100-0 [x 0:4 of 6], l40s-0 [x 4:6 of 6]" in outcome.text
    assert "m0.relu: a100-0 [twin 1 of 2], l40s-0 [twin 2 of 2]" in outcome.text
    planned = parse_plan(target.read_text())
    assert planned.traces[0].division == Division(
        (
            Cut(step=0, axis="bytes", edges=(0, 1, 4)),
            Cut(step=2, axis="x", edges=(0, 4, 6)),
            Cut(step=5, axis="x", edges=(0, 2, 3)),
        ),
        (Twin(3, 2),),
    )
    assert "cut=linear:x=0.6@a100,0.4@l40s" in planned.options
    assert tessc("check", str(target)).code == 0
    again = tmp_path / "again.tsp"
    common_again = ("plan", str(MLP), "--gpus", "a100,l40s", "--placement", str(target))
    assert tessc(*common_again, "-o", str(again)).code == 0
    placed = parse_plan(again.read_text())
    assert placed.traces == planned.traces
    assert [s.device for s in placed.replicas[0].traces[0].steps] == [
        s.device for s in planned.replicas[0].traces[0].steps
    ]
    outcome = tessc(*common_again, "--twin", "relu", "-o", str(again))
    assert "divides steps in another way than asked for" in outcome.err
    document = json.loads(tessc(*common, "--json").text)
    steps = document["replicas"][0]["traces"][0]["steps"]
    linear = [(step["origin"], step["range"], step["device"]) for step in steps][3:5]
    assert linear == [(2, ["x", 0, 4, 6], "a100-0"), (2, ["x", 4, 6, 6], "l40s-0")]
    assert [step["twin"] for step in steps][5:7] == [True, True]


@pytest.mark.parametrize(
    ("asked", "reason", "hint"),
    [
        ("--cut=count_positive:x=0.5,0.5", "makes its CTAs share bytes of `active`", ""),
        ("--cut=linear:x=0.5,0.4", "add up to 0.9, not to 1", "in proportion they are 0.556,0.444"),
        ("--cut=2:x=4,1", "add up to 5, and `x` has 6", "nearest legal cut is `--cut 2:x=5,1`"),
        ("--cut=2:x=0.99,0.01", "less than one of the 6 units", "nearest legal cut is `--cut 2:x="),
        ("--cut=2:q=1,2", "it has no axis `q`", "it can be cut along `x` (6, multiples of 1)"),
        ("--cut=2:x=4,2@h100", "there is no GPU `h100`", "the GPUs are: a100-0, l40s-0"),
        ("--cut=linea:x=4,2", "names no step", "did you mean `linear`?"),
        ("--cut=2=4,2", "is not well formed", "write `STEP:AXIS=SHARES`"),
        ("--cut=2:x=6", "has no two shares", ""),
        ("--cut=1:bytes=3830,10", "are cut at multiples of 4", "`--cut 1:bytes=3832,8`"),
        ("--twin=count_positive", "has no twins: `atom.global.add.u32` changes", ""),
        ("--twin=relu=a100", "need different GPUs", "name two or more"),
    ],
)
def test_what_cannot_be_divided_so(asked: str, reason: str, hint: str, tmp_path: Path) -> None:
    target = tmp_path / "plan.tsp"
    outcome = tessc("plan", str(MLP), "--gpus", "a100,l40s", asked, "-o", str(target))
    assert outcome.code == 1
    assert outcome.err.count("error[TSR3029]") == 1
    assert reason in outcome.err
    assert hint in outcome.err
    assert not target.exists()


CLUSTERS = """//! tessera.trace 1
//! buffer y bytes=512 role=output
//! module m arch=sm_90
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global y) {
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd1, %r1, 4;
    ld.param.u64 %rd2, [y];
    add.s64 %rd3, %rd2, %rd1;
    st.global.u32 [%rd3], %r1;
    ret;
}
//! launch m.k grid=128,1,1 block=1,1,1 cluster=2,1,1 args=[y]
"""


def test_a_cut_off_the_tile_and_a_device_without_code(tmp_path: Path) -> None:
    trace = tmp_path / "clusters.ptx"
    trace.write_text(CLUSTERS)
    common = ("plan", str(trace), "--gpus", "h100,a100", "-o", str(tmp_path / "plan.tsp"))
    outcome = tessc(*common, "--cut", "k:x=95,33")
    assert outcome.code == 1
    assert "its 128 of `x` are cut at multiples of 2" in outcome.err
    assert "the nearest legal cut is `--cut k:x=96,32`" in outcome.err
    outcome = tessc(*common, "--cut", "k:x=96@h100,32@a100")
    assert outcome.code == 1
    assert "`m.k` [x 96:128 of 128] of step #0 cannot run on `a100`: " in outcome.err
    assert "GPUs that can run it: h100-0" in outcome.err
    outcome = tessc(*common, "--strategy", "parts", "--cut", "k:x=96,32")
    assert outcome.code == 2
    assert "`--strategy` divides steps itself" in outcome.err
