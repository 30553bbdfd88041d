"""Which backend runs a plan, by what is asked for and what is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.backends import LocalGpu, choose_backend, parse_map
from tessera.driver.run.open_plan import OpenPlan, open_plan
from tessera.ir.plan.hosts import HostEntry, HostTable
from tests.helpers.plan_files import plan_of
from tests.helpers.random_traces import random_program

A100 = LocalGpu(target="cuda:0", name="NVIDIA A100-SXM4-80GB", arch="sm_80", sms=108)
A100_TOO = replace(A100, target="cuda:1")
L40S = LocalGpu(target="cuda:1", name="NVIDIA L40S", arch="sm_89", sms=142)


@pytest.fixture(scope="module")
def opened() -> OpenPlan:
    """A plan for two A100s, `a` and `b`."""
    return open_plan(plan_of([random_program(1, steps=2)], [["a", "b"]]))


def test_a_map() -> None:
    assert parse_map("a=cuda:0, b=cuda:1:48sm") == {"a": "cuda:0", "b": "cuda:1:48sm"}
    assert parse_map(None) == {}


@pytest.mark.parametrize(
    "text", ["a", "a=", "=cpu", "a=gpu:0", "a=cpu,a=cpu", "a=cuda:x", ",", "", "a=cuda:0:0sm"]
)
def test_a_map_that_cannot_be_used(text: str) -> None:
    with pytest.raises(TesseraError, match="TSR5055"):
        parse_map(text)


def test_auto_without_gpus_is_the_cpu(opened: OpenPlan) -> None:
    assert choose_backend(opened, "auto", {}, ()).backend == "cpu"


def test_auto_takes_gpus_of_the_right_kind(opened: OpenPlan) -> None:
    choice = choose_backend(opened, "auto", {}, (A100, A100_TOO))
    assert (choice.backend, dict(choice.targets)) == ("cuda", {"a": "cuda:0", "b": "cuda:1"})


@pytest.mark.parametrize("here", [(A100,), (A100, L40S)], ids=["too few", "another kind"])
def test_auto_does_not_guess(opened: OpenPlan, here: tuple[LocalGpu, ...]) -> None:
    with pytest.raises(TesseraError, match="does not have the GPUs of the plan") as failure:
        choose_backend(opened, "auto", {}, here)
    assert failure.value.exit_code == 4
    assert any("A100" in note for note in failure.value.diagnostics[0].notes)


def test_a_map_decides_the_backend(opened: OpenPlan) -> None:
    assert choose_backend(opened, "auto", {"a": "cpu", "b": "cpu"}, (A100,)).backend == "cpu"
    targets = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}
    choice = choose_backend(opened, "auto", targets, (L40S,))
    assert (choice.backend, choice.targets) == ("cuda", targets)


@pytest.mark.parametrize(
    ("asked", "targets"),
    [("auto", {"a": "cpu", "b": "cuda:0"}), ("cpu", {"a": "cuda:0"}), ("auto", {"c": "cpu"})],
)
def test_what_does_not_fit_together(opened: OpenPlan, asked: str, targets: dict[str, str]) -> None:
    with pytest.raises(TesseraError, match="TSR5055") as failure:
        choose_backend(opened, asked, targets, (A100,))
    assert failure.value.exit_code == 2


def test_slices_of_a_card_share_its_gpu(opened: OpenPlan) -> None:
    devices = tuple(replace(d, card="a", sms=54) for d in opened.plan.devices)
    sliced = replace(opened, plan=replace(opened.plan, devices=devices))
    choice = choose_backend(sliced, "auto", {}, (A100,))
    assert dict(choice.targets) == {"a": "cuda:0:54sm", "b": "cuda:0:54sm"}


def one_slice(opened: OpenPlan, sms: int) -> OpenPlan:
    """The plan for a slice of each of its cards."""
    devices = tuple(replace(device, sms=sms) for device in opened.plan.devices)
    return replace(opened, plan=replace(opened.plan, devices=devices))


@pytest.mark.parametrize(
    ("asked", "here"),
    [("auto", (A100, A100_TOO)), ("cuda", (A100, A100_TOO)), ("cuda", (L40S,))],
    ids=["auto", "cuda", "another kind"],
)
def test_a_lone_slice_of_a_card_is_a_slice_of_its_gpu(
    opened: OpenPlan, asked: str, here: tuple[LocalGpu, ...]
) -> None:
    """What was planned for 48 SMs does not run on all of them, whoever chooses the GPU."""
    choice = choose_backend(one_slice(opened, 48), asked, {}, here)
    assert dict(choice.targets) == {"a": "cuda:0:48sm", "b": "cuda:1:48sm"}


def test_what_a_map_leaves_out_is_a_slice_too(opened: OpenPlan) -> None:
    choice = choose_backend(one_slice(opened, 48), "auto", {"b": "cuda:0:84sm"}, (L40S,))
    assert dict(choice.targets) == {"a": "cuda:1:48sm", "b": "cuda:0:84sm"}
    shared = one_slice(opened, 54)
    devices = tuple(replace(device, card="a") for device in shared.plan.devices)
    shared = replace(shared, plan=replace(shared.plan, devices=devices))
    choice = choose_backend(shared, "cuda", {}, (L40S,))
    assert dict(choice.targets) == {"a": "cuda:0:54sm", "b": "cuda:0:54sm"}


def test_slices_on_hosts_are_slices(opened: OpenPlan) -> None:
    entries = tuple(HostEntry(name=name, devices=(name,)) for name in "ab")
    hosts = HostTable(name="hosts.toml", hosts=entries)
    for sms, part in ((48, ":48sm"), (108, "")):
        choice = choose_backend(one_slice(opened, sms), "cuda", {}, hosts=hosts)
        assert dict(choice.targets) == {"a": f"cuda:0{part}", "b": f"cuda:0{part}"}


def test_a_gpu_with_fewer_sms_than_planned_is_not_that_gpu(opened: OpenPlan) -> None:
    smaller = tuple(replace(gpu, sms=98) for gpu in (A100, A100_TOO))
    with pytest.raises(TesseraError, match="does not have the GPUs of the plan") as failure:
        choose_backend(opened, "auto", {}, smaller)
    assert "found: cuda:0 (NVIDIA A100-SXM4-80GB, 98 SMs)" in failure.value.diagnostics[0].notes


def test_a_kind_of_gpu_stands_for_its_only_device() -> None:
    plan = plan_of([random_program(1, steps=2)], [["a100-0", "l40s-0"]])
    choice = choose_backend(open_plan(plan), "auto", {"a100": "cuda:0", "l40s": "cuda:1"}, (A100,))
    assert choice.targets == {"a100-0": "cuda:0", "l40s-0": "cuda:1"}


def test_asked_for_gpus_a_plan_takes_those_that_are_there_in_order(opened: OpenPlan) -> None:
    choice = choose_backend(opened, "cuda", {}, (L40S,))
    assert choice.targets == {"a": "cuda:0", "b": "cuda:1"}
    choice = choose_backend(opened, "cuda", {"b": "cuda:0"}, (L40S,))
    assert choice.targets == {"a": "cuda:1", "b": "cuda:0"}


def test_a_plan_across_hosts_can_only_be_rehearsed(opened: OpenPlan) -> None:
    cards = tuple(replace(card, node=f"host-{card.name}") for card in opened.plan.cards)
    apart = replace(opened, plan=replace(opened.plan, cards=cards))
    for asked in ("auto", "cuda"):
        with pytest.raises(TesseraError, match="for 2 hosts") as failure:
            choose_backend(apart, asked, {}, (A100, A100_TOO))
        assert failure.value.exit_code == 4
    assert choose_backend(apart, "cpu", {}, ()).backend == "cpu"
    targets = {"a": "cuda:0:54sm", "b": "cuda:0:54sm"}
    assert choose_backend(apart, "auto", targets, (A100,)).targets == targets
