"""Where buffers lie: apart while memory is free, on top of each other where it is short."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.driver.run.open_plan import open_plan
from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan

GIB = 1 << 30
WORDS = GIB // 4
PARTS = 4


def chain() -> str:
    """Device `a` makes one part after the other, `b` adds them up: every part is sent."""
    shape = f"f32[{WORDS}]"
    lines = ["tessera.trace 1"]
    lines += [f"buffer t{part} bytes={GIB} role=temp" for part in range(PARTS)]
    lines += [f"buffer u{part} bytes={GIB} role=temp" for part in range(PARTS)]
    lines += ["buffer y bytes=4 role=output", "memset u0 bytes=4 value=0"]
    for part in range(PARTS):
        lines.append(f"memset t{part} bytes={GIB} value={part}")
        if part:
            reads = f"u{part - 1}:{shape}, t{part}:{shape}"
            lines.append(f"op aten::add.Tensor reads=[{reads}] writes=[u{part}:{shape}]")
        else:
            lines.append(f"op aten::relu reads=[t0:{shape}] writes=[u0:{shape}]")
    lines.append(f"memcpy y u{PARTS - 1} bytes=4")
    return "".join(f"//! {line}\n" for line in lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chain."""
    made = tmp_path_factory.mktemp("layout")
    (made / "chain.ptx").write_text(chain())
    return made


@cache
def planned(folder: Path, memory: int, slots: int | None, objective: str = "throughput") -> Plan:
    """Every part is sent."""
    steps = ["l40s", *("a100", "l40s") * PARTS, "l40s"]
    options = PlanOptions(
        gpus="a100,l40s",
        pins=tuple(f"#{number}={device}" for number, device in enumerate(steps)),
        memory=(("a100", memory),),
        slots=slots,
        objective=objective,
    )
    return plan(folder / "chain.ptx", options, compare=False).plan


def slot_bytes(made: Plan, device: str) -> int:
    (replica,) = made.replicas
    return next(
        area.bytes
        for area in replica.lowered.areas
        if area.device == device and area.kind is AreaKind.SLOT
    )


def test_compute_does_not_wait_for_sends_while_memory_is_free(folder: Path) -> None:
    assert slot_bytes(planned(folder, 80 * GIB, 1), "a100-0") == PARTS * GIB


def test_memory_for_more_slots_comes_from_sharing(folder: Path) -> None:
    """With room for one slot that shares nothing, there are as many as pay of those that do."""
    one, several = planned(folder, 6 * GIB, 1), planned(folder, 6 * GIB, None)
    assert several.replicas[0].slots > 1
    assert slot_bytes(several, "a100-0") == GIB
    assert several.period_ns < one.period_ns
    # The other card has memory left in both.
    assert slot_bytes(one, "l40s-0") == slot_bytes(several, "l40s-0")


def test_two_policies_share_the_memory(folder: Path) -> None:
    """Each may take half before its buffers share bytes; together they fit in any case."""
    for memory in (6 * GIB, 10 * GIB, 80 * GIB):
        made = planned(folder, memory, 1, "latency+throughput")
        assert len(made.replicas) == 2
        assert all(card.used_bytes <= card.capacity_bytes for card in made.cards)


def test_other_slots_when_run_are_laid_out_anew(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.tsp"
    path.write_text(print_plan(planned(folder, 10 * GIB, 1)))
    opened = open_plan(str(path), slots=2)
    assert slot_bytes(opened.plan, "a100-0") == PARTS * GIB
    opened = open_plan(str(path), slots=3)
    assert slot_bytes(opened.plan, "a100-0") == GIB


@pytest.mark.parametrize("slots", [None, 2])
def test_what_fits_only_if_buffers_share_bytes_is_found(folder: Path, slots: int | None) -> None:
    """All buffers of a request are 8 GiB; those that live at a time are 3."""
    options = PlanOptions(gpus="l40s", memory=(("l40s", 7 * GIB),), slots=slots)
    made = plan(folder / "chain.ptx", options, compare=False).plan
    assert made.replicas[0].slots == (slots or 1)
    assert slot_bytes(made, "l40s-0") <= 3 * GIB
    assert made.cards[0].used_bytes <= made.cards[0].capacity_bytes


def test_what_does_not_fit_even_so_is_refused_by_what_it_needs(folder: Path) -> None:
    options = PlanOptions(gpus="l40s", memory=(("l40s", 3 * GIB),))
    with pytest.raises(TesseraError) as refused:
        plan(folder / "chain.ptx", options, compare=False)
    (told,) = refused.value.diagnostics
    assert told.code == "TSR3010"
    assert told.hint is not None
    assert "1.1 GB more" in told.hint


def test_copies_get_the_requests_that_their_lanes_carry(tmp_path: Path) -> None:
    """Outputs of 4 GiB that take little to make: the way to the host decides, not the device."""
    lines = ["tessera.trace 1", "buffer y bytes=4294967296 role=output"]
    lines.append("memset y bytes=4294967296 value=1")
    (tmp_path / "large.ptx").write_text("".join(f"//! {line}\n" for line in lines))
    options = PlanOptions(gpus="a100,h100", link="100Gb/s", strategy="dp")
    made = plan(tmp_path / "large.ptx", options, compare=False)
    lanes = {card.name: card.gpu.pcie_bandwidth for card in made.machine.cards}
    assert lanes["h100-0"] > lanes["a100-0"]
    shares = {r.lowered.devices[0]: r.share for r in made.plan.replicas}
    assert shares["a100-0"] == pytest.approx(lanes["a100-0"] / sum(lanes.values()), rel=1e-3)
    assert made.plan.period_ns == pytest.approx(4 * GIB * 1e9 / sum(lanes.values()), rel=0.01)
