"""What the duration model takes from a data sheet, on GPUs that it was not fitted to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.frontend.machine.gpu_table import find_gpu
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.device_model import (
    FITTED,
    LAUNCH_NS,
    SUSTAINED,
    Traffic,
    launch_cycles,
    launch_ns,
    parts_of,
)
from tessera.planning.prices.estimate_costs import error_of

CTAS = 14_800


def launch(**counts: float) -> LaunchWork:
    """Many CTAs of 128 threads with little to do but what is given."""
    usual = {"instructions": 1.0 * CTAS * 128, "chain": 1.0, "asked_bytes": 0.0}
    given = {**usual, **counts}
    return LaunchWork(
        ctas=CTAS,
        threads=CTAS * 128,
        instructions=given["instructions"],
        memory_instructions=0.0,
        asked_bytes=given["asked_bytes"],
        units=(("bf16", given["matrix"]),) if "matrix" in given else (),
        chain=given["chain"],
        chain_loads=0.0,
        chain_barriers=given.get("barriers", 0.0),
        chain_waits=given.get("waits", 0.0),
        shared_bytes=0,
        sure=True,
    )


def test_two_dies_give_each_sm_more_of_l2() -> None:
    """All that differs between the GPUs here is what L2 gives: an SM cannot take all of it."""
    asks = launch(asked_bytes=1e10)
    one, two = (
        launch_ns(asks, Traffic(), replace(find_gpu("b200"), arch=arch), 148)
        for arch in ("sm_90a", "sm_100a")
    )
    assert 1.2 < one / two < 2.0
    one, two = (
        launch_ns(launch(), Traffic(), replace(find_gpu("b200"), arch=arch), 148)
        for arch in ("sm_80", "sm_100a")
    )
    assert one - two == pytest.approx(LAUNCH_NS[80] - LAUNCH_NS[100])


def launch_time(gpu: Gpu) -> float:
    """Nanoseconds of a launch before its CTAs."""
    return launch_cycles(gpu, FITTED) / gpu.clock_mhz * 1e3


def test_a_launch_takes_the_same_time_at_any_clock_but_where_cycles_are_fitted() -> None:
    card, fitted = find_gpu("l40s"), find_gpu("h200")
    assert launch_time(replace(card, clock_mhz=1000.0)) == pytest.approx(launch_time(card))
    slower = replace(fitted, clock_mhz=fitted.clock_mhz / 2)
    assert launch_time(slower) == pytest.approx(2 * launch_time(fitted))


def test_a_launch_on_an_unknown_architecture_is_like_those_of_its_kind() -> None:
    graphics = [LAUNCH_NS[number] for number in (89, 120)]
    assert min(graphics) <= launch_time(find_gpu("a10")) <= max(graphics)
    every = [*LAUNCH_NS.values(), launch_time(find_gpu("h200"))]
    assert min(every) < launch_time(find_gpu("v100-sxm2-32g")) < max(every)


def test_one_l2_holds_more_of_what_comes_again() -> None:
    """In two partitions the same bytes may be twice."""
    for name, kept in (("h200", False), ("b200", False), ("l40s", True)):
        gpu = find_gpu(name)
        again = Traffic(warm=0.75 * gpu.l2_bytes)
        assert (again.missed(gpu) == 0.0) == kept
        assert Traffic(warm=1.5 * gpu.l2_bytes).missed(gpu) == 1.5 * gpu.l2_bytes


def test_graphics_cards_keep_their_clock_as_far_as_their_watts_go() -> None:
    card = replace(find_gpu("l4"), key="other")
    kept = parts_of(card, 0.95, 0.95).clock
    assert 0.5 < kept < 1.0
    eighth = replace(card, watts=(card.watts or 0.0) / 8)
    assert parts_of(eighth, 0.95, 0.95).clock == pytest.approx(kept / 2)
    assert parts_of(replace(card, watts=1e6), 0.95, 0.95).clock == 1.0
    assert 0.5 < parts_of(replace(card, watts=None), 0.95, 0.95).clock < 1.0
    computes = launch(matrix=1e14)
    slow, fast = (
        launch_ns(computes, Traffic(), gpu, card.sms) for gpu in (eighth, replace(card, watts=1e6))
    )
    assert slow / fast == pytest.approx(2 / kept, rel=0.02)


def test_other_architectures_keep_it() -> None:
    for name in ("h200", "h100", "b200"):
        assert parts_of(replace(find_gpu(name), watts=1.0), 0.95, 0.95).clock == 1.0


def test_what_tables_say_of_a_gpu_comes_first() -> None:
    for key, own in SUSTAINED.items():
        assert parts_of(find_gpu(key), 0.5, 0.5) == own
        assert parts_of(replace(find_gpu(key), key="mine", like=key), 0.5, 0.5) == own


def test_every_gpu_of_the_table_that_has_watts_is_read_with_them() -> None:
    assert [find_gpu(name).watts for name in ("a100", "l40s", "b200")] == [400, 350, 1000]


def test_a_wait_takes_longer_than_a_barrier() -> None:
    gpu = find_gpu("h200")
    waits, barriers, none = (
        launch_ns(launch(**counts), Traffic(), gpu, gpu.sms)
        for counts in ({"waits": 500.0}, {"barriers": 500.0}, {})
    )
    assert waits > barriers > none


def test_bars_are_wider_where_no_kernel_was_measured() -> None:
    fitted, other, newer = (error_of(1e6, find_gpu(name)) for name in ("h200", "h100", "b200"))
    assert fitted < other < newer
    assert error_of(1e4, find_gpu("h100")) > other  # short ones are known less well


def test_very_many_small_ctas_are_bound_by_their_beginning() -> None:
    """On all SMs the GPU hands them out, on few each SM begins them."""
    gpu = find_gpu("h200")
    whole, slice_ = (launch_ns(launch(), Traffic(), gpu, sms) for sms in (gpu.sms, 48))
    assert whole > CTAS * FITTED.dispatch_cycles / gpu.clock_mhz * 1e3
    assert slice_ > CTAS / 48 * FITTED.begin_cycles / gpu.clock_mhz * 1e3
    assert slice_ < 2.5 * whole  # were it the SMs alone, 2.75


def test_blackwell_ultra_has_twice_the_units_for_exponentials() -> None:
    """Work of nothing else takes half the time there, but for a launch and what goes beside it."""
    work = replace(launch(), units=(("special", 1e12),))
    own, other = (
        launch_ns(work, Traffic(), replace(find_gpu("b300"), arch=arch), 148)
        for arch in ("sm_103a", "sm_100a")
    )
    assert other / own == pytest.approx(2.0, rel=0.02)
