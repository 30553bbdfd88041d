"""Several traces in one plan: shared weights and state are placed once, requests weigh."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from tessera.diagnostics import Source, TesseraError
from tessera.driver import plan as driver_plan
from tessera.driver.load import read_program
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.passes.base import AnalysisManager
from tessera.passes.checker.check_plan import check_plan
from tessera.passes.dependences.dependences import Dependences
from tests.helpers.share import share

MEGA = 1 << 20
MODULE = """//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry apply(.param .u64 o, .param .u64 a, .param .u64 b, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %a<10>;
    ld.param.u64 %a1, [o];
    ld.param.u64 %a2, [a];
    ld.param.u64 %a3, [b];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra DONE;
    mul.wide.u32 %a4, %r5, 4;
    add.u64 %a5, %a1, %a4;
    add.u64 %a6, %a2, %a4;
    add.u64 %a7, %a3, %a4;
    ld.global.f32 %f1, [%a6];
    ld.global.f32 %f2, [%a7];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%a5], %f3;
DONE:
    ret;
}
"""


def trace(size: int, private: str) -> str:
    """x -> t -> y, with a weight and a cache that both traces have, and a weight of its own."""
    count = size // 4
    launch = f"grid={(count + 255) // 256},1,1 block=256,1,1"
    return f"""//! tessera.trace 1
//! buffer w bytes={size} role=weight
//! buffer {private} bytes={size} role=weight
//! buffer cache bytes={size} role=state
//! buffer x bytes={size} role=input
//! buffer t bytes={size} role=temp
//! buffer y bytes={size} role=output
{MODULE}//! launch m.apply {launch} args=[t, x, w, u32:{count}]
//! launch m.apply {launch} args=[cache, cache, t, u32:{count}]
//! launch m.apply {launch} args=[y, cache, {private}, u32:{count}]
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("mix")
    for name, private in (("prefill", "p"), ("decode", "d")):
        (folder / f"{name}.ptx").write_text(trace(MEGA, private))
    with mock.patch.object(driver_plan, "load_traces", cache(driver_plan.load_traces)):
        yield f"{folder}/prefill.ptx:1", f"{folder}/decode.ptx:3"


def proved(found: Plan) -> bool:
    """From the file alone."""
    again = parse_plan(print_plan(found))
    programs = [read_program(Source(one.name, one.text))[0] for one in again.traces]
    graphs = [AnalysisManager(program).get(Dependences).graph for program in programs]
    return not check_plan(again, programs, graphs)


def test_shared_buffers_are_placed_once(files: tuple[str, str]) -> None:
    found = plan(files, PlanOptions(gpus="a100", slots=2, sequences=5)).plan
    assert [(one.name, one.share) for one in found.traces] == [("prefill", 0.25), ("decode", 0.75)]
    assert proved(found)
    (replica,) = found.replicas
    areas = {area.kind: area for area in replica.lowered.areas}
    assert areas[AreaKind.WEIGHTS].bytes == 3 * MEGA
    assert (areas[AreaKind.LANE].bytes, areas[AreaKind.LANE].count) == (MEGA, 5)
    places = {(place.trace, place.buffer): place.offset for place in replica.lowered.places}
    assert places[0, 0] == places[1, 0]
    assert places[0, 1] != places[1, 1]
    assert len(replica.traces) == len(replica.lowered.traces) == 2


def test_parts_weigh(files: tuple[str, str]) -> None:
    single = [plan(name.rpartition(":")[0], PlanOptions(gpus="a100")).plan for name in files]
    both = plan(files, PlanOptions(gpus="a100")).plan
    wanted = sum(one.period_ns * share for one, share in zip(single, (0.25, 0.75), strict=True))
    assert both.period_ns == pytest.approx(wanted)


@pytest.mark.parametrize("seed", share(range(8)))
def test_random_placements_of_a_mix_are_proved(files: tuple[str, str], seed: int) -> None:
    options = PlanOptions(gpus="a100,l40s,h100", placement=f"random:{seed}", slots=2)
    found = plan(files, options, compare=False).plan
    assert proved(found)
    # What touches the cache stays together in both traces.
    steps = found.replicas[0].traces
    assert len({steps[trace].steps[step].device for trace in (0, 1) for step in (1, 2)}) == 1


def test_phases_are_a_strategy(tmp_path: Path) -> None:
    for name, private in (("prefill", "p"), ("decode", "d")):
        text = trace(MEGA, private).replace("buffer cache", f"buffer {name}_cache")
        (tmp_path / f"{name}.ptx").write_text(
            text.replace("[cache, cache", f"[{name}_cache, {name}_cache").replace(
                "[y, cache", f"[y, {name}_cache"
            )
        )
    names = (str(tmp_path / "prefill.ptx"), str(tmp_path / "decode.ptx"))
    found = plan(names, PlanOptions(gpus="2xl40s", strategy="phase"), compare=False).plan
    assert proved(found)
    placed = [
        (one.trace, step.device) for r in found.replicas for one in r.traces for step in one.steps
    ]
    assert {*placed} in ({(0, "l40s-0"), (1, "l40s-1")}, {(0, "l40s-1"), (1, "l40s-0")})
    weights = [a for r in found.replicas for a in r.lowered.areas if a.kind is AreaKind.WEIGHTS]
    assert sorted(area.bytes for area in weights) == [2 * MEGA, 2 * MEGA]
    assert not any(replica.hand_overs for replica in found.replicas)


def test_pins_may_name_their_trace(files: tuple[str, str]) -> None:
    options = PlanOptions(gpus="a100,l40s", pins=("decode:#0=a100", "prefill:#0=l40s"))
    found = plan(files, options, compare=False).plan
    for replica in found.replicas:
        assert replica.traces[0].steps[0].device == "l40s-0"
        assert replica.traces[1].steps[0].device == "a100-0"
    with pytest.raises(TesseraError, match="TSR3017"):
        plan(files, PlanOptions(gpus="a100,l40s", pins=("encode:#0=a100",)))


def test_memory_counts_shared_weights_once(tmp_path: Path) -> None:
    giga = 1_000_000_000
    for name in ("prefill", "decode"):
        (tmp_path / f"{name}.ptx").write_text(
            f"//! tessera.trace 1\n//! buffer w bytes={30 * giga} role=weight\n"
            f"//! buffer y bytes=4096 role=output\n//! memcpy y w bytes=2048\n"
            f"//! memcpy y+2048 w+{30 * giga - 2048} bytes=2048\n"
        )
    names = (str(tmp_path / "prefill.ptx"), str(tmp_path / "decode.ptx"))
    found = plan(names, PlanOptions(gpus="l40s")).plan
    assert 30 * giga <= found.cards[0].used_bytes < 31 * giga
    assert proved(found)
