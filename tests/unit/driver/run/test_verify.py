"""Verification finds what differs, and the launch behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tessera.backend.processes.inline import InlineBackend
from tessera.backend.processes.reference import Reference
from tessera.backend.service import Model, Request
from tessera.diagnostics import TesseraError
from tessera.driver.run.backends import BackendChoice
from tessera.driver.run.compare_runs import compare_runs
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.run_plan import PlanRunOptions, Prepared, prepare_run
from tessera.driver.run.serving import models_of
from tessera.driver.run.tolerance import distance
from tessera.driver.run.verify import AloneOn, obstacles, verify_launches, verify_run
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.launch_program import Queue, Receive
from tessera.ir.program.data_type import DataType
from tests.helpers.plan_files import plan_of
from tests.helpers.random_traces import random_program
from tests.helpers.traces import COPY, trace

SEED = 3


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    program = random_program(SEED)
    placement = ["ab"[n % 2] for n in range(len(program.steps))]
    plan = plan_of([program], [placement], slots=1, lanes=2)
    return prepare_run(plan, PlanRunOptions(requests=3, backend="cpu"))


def run_inline(prepared: Prepared, model: Model) -> Outcome:
    """The requests one by one in this process."""
    backend = InlineBackend(model)
    done = {}
    for turn in prepared.turns:
        inputs = prepared.materials.inputs(turn.request, turn.trace, turn.turn)
        backend.begin(
            Request(
                number=turn.request, trace=turn.trace, slot=0, lane=turn.sequence, inputs=inputs
            )
        )
        done |= {one.request: one for one in backend.collect(1.0)}
    return Outcome(
        opened=prepared.opened,
        backend="cpu",
        turns=prepared.turns,
        done=done,
        seconds=1.0,
        states=tuple(backend.read_states(lane) for lane in range(model.lowered.lanes)),
    )


def test_a_good_run_is_equal_to_the_byte(prepared: Prepared) -> None:
    (model,) = models_of(prepared.opened, prepared.materials)
    verdict = verify_run(run_inline(prepared, model), prepared)
    assert (verdict.requests, verdict.lanes, verdict.how) == (3, 2, "to the byte")
    assert verdict.bytes == 3 * 2 * 256 + 2 * 2 * 256


def test_an_output_that_was_changed_afterwards(prepared: Prepared) -> None:
    (model,) = models_of(prepared.opened, prepared.materials)
    outcome = run_inline(prepared, model)
    for one in outcome.done.values():
        one.outputs["y1"][5] ^= 1
    with pytest.raises(TesseraError) as failure:
        verify_run(outcome, prepared)
    (found,) = failure.value.diagnostics
    assert failure.value.exit_code == 5
    assert found.code == "TSR5054"
    assert "request 0" in str(found.headline)
    assert "output `y1`: 1 of 256 bytes" in str(found.headline)
    assert "byte 5" in found.notes[0]


def test_a_state_that_was_changed_afterwards(prepared: Prepared) -> None:
    (model,) = models_of(prepared.opened, prepared.materials)
    outcome = run_inline(prepared, model)
    assert outcome.states is not None
    outcome.states[1]["s0"][0] ^= 1
    with pytest.raises(TesseraError, match=r"sequence 1 differs .* state `s0`"):
        verify_run(outcome, prepared)


def test_the_first_launch_that_diverges_is_named() -> None:
    """Without a receive, the step that needs its bytes works on poison."""
    buffers = """
    buffer x bytes=64 role=input dtype=f32 shape=16
    buffer h bytes=64 role=temp dtype=f32 shape=16
    buffer y bytes=64 role=output dtype=f32 shape=16
    buffer z bytes=64 role=output dtype=f32 shape=16
    """
    steps = """
    launch m.copy grid=1,1,1 block=16,1,1 args=[h, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[y, h, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[z, y, u32:16]
    """
    plan = plan_of([trace(buffers, COPY, steps)], [["a", "b", "b"]], slots=1, lanes=1)
    prepared = prepare_run(plan, PlanRunOptions(requests=2, backend="cpu"))
    model = without_receives(models_of(prepared.opened, prepared.materials)[0], "b")
    # What is planned and what ran differ here, so the replay has to use what ran.
    outcome = run_inline(prepared, model)
    reference = Reference(model.traces, model.weights, model.states, model.fillings)
    with pytest.raises(TesseraError) as failure:
        compare_runs(outcome, prepared.materials, [model], [reference])
    (found,) = failure.value.diagnostics
    assert (
        "the first launch that diverges is #1 `m.copy` of request 0 on device `b`"
        in (found.notes[1])
    )


def without_receives(model: Model, device: str) -> Model:
    (lowered,) = model.lowered.traces
    programs = tuple(
        replace(
            program,
            operations=tuple(
                one
                for one in program.operations
                if program.device != device
                or not (one.queue is Queue.IN and isinstance(one.operation, Receive))
            ),
        )
        for program in lowered.programs
    )
    return replace(
        model, lowered=replace(model.lowered, traces=(replace(lowered, programs=programs),))
    )


# --- where bytes cannot be equal ---------------------------------------------------------------


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other backend stands in this process."""
    make = lambda choice, model, options: InlineBackend(model, options)  # noqa: E731
    monkeypatch.setattr("tessera.driver.run.verify.make_backend", make)


@pytest.mark.usefixtures("inline")
def test_one_device_through_the_same_backend(prepared: Prepared) -> None:
    (model,) = models_of(prepared.opened, prepared.materials)
    alone = AloneOn(model, prepared.opened.graphs, BackendChoice(backend="cpu", targets={}), 60.0)
    try:
        outcome = run_inline(prepared, model)
        assert compare_runs(outcome, prepared.materials, [model], [alone]).requests == 3
    finally:
        alone.close()


@pytest.mark.usefixtures("inline")
def test_launch_by_launch() -> None:
    program = random_program(5, steps=3)
    plan = plan_of([program], [["a", "b", "a"]], slots=1, lanes=1)
    prepared = prepare_run(plan, PlanRunOptions(requests=1, backend="cpu"))
    models = models_of(prepared.opened, prepared.materials)
    verdict = verify_launches(prepared, models)
    assert verdict.bytes > 0
    assert "launch by launch" in verdict.how


ADDING = """.version 8.0
.target {arch}
.address_size 64
.visible .entry add(.param .u64 .ptr .global out, .param .u64 .ptr .global x)
{{
    .reg .b64 %rd<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.global.f32 %f1, [%rd2];
    add.f32 %f2, %f1, {constant};
    st.global.f32 [%rd1], %f2;
    ret;
}}
"""


def two_variants(constant: str) -> Prepared:
    """One step as sm_80 on `a`, one as sm_90 on `b`, which adds something else."""
    text = (
        "//! tessera.trace 1\n"
        "//! buffer x bytes=4 role=input dtype=f32 shape=1\n"
        "//! buffer h bytes=4 role=temp dtype=f32 shape=1\n"
        "//! buffer y bytes=4 role=output dtype=f32 shape=1\n"
        f"//! module m\n{ADDING.format(arch='sm_80', constant='0f3F800000')}"
        f"//! module m arch=sm_90\n{ADDING.format(arch='sm_90', constant=constant)}"
        "//! launch m.add grid=1,1,1 block=1,1,1 args=[h, x]\n"
        "//! launch m.add grid=1,1,1 block=1,1,1 args=[y, h]\n"
    )
    plan = plan_of([parse_trace(text, "trace.ptx")], [["a", "b"]], slots=1, lanes=1)
    (replica,) = plan.replicas
    (placed,) = replica.traces
    steps = (placed.steps[0], replace(placed.steps[1], arch="sm_90"))
    replica = replace(replica, traces=(replace(placed, steps=steps),))
    newer = replace(plan.cards[1], gpu="h100-sxm", arch="sm_90a")
    cards = (plan.cards[0], newer)
    plan = replace(plan, replicas=(replica,), cards=cards)
    return prepare_run(plan, PlanRunOptions(requests=2, backend="cpu"))


def test_variants_are_compared_launch_by_launch() -> None:
    prepared = two_variants("0f3F800001")  # the next float after 1
    (model,) = models_of(prepared.opened, prepared.materials)
    verdict = verify_run(run_inline(prepared, model), prepared)
    assert verdict.how == "to the byte"
    assert "sm_80 on a, sm_90 on b" in verdict.notes[0]
    assert "bytes need not be equal" in verdict.notes[1]
    assert "1 launch compared, the worst: #1 `m.add`, `y` as f32" in verdict.notes[2]


def test_variants_that_compute_something_else() -> None:
    prepared = two_variants("0f40000000")
    (model,) = models_of(prepared.opened, prepared.materials)
    outcome = run_inline(prepared, model)
    with pytest.raises(TesseraError, match="differs from its oldest variant") as failure:
        verify_run(outcome, prepared)
    assert failure.value.exit_code == 5


ADD = """
.visible .entry add(.param .u64 .ptr .global out, .param .u64 .ptr .global x)
{
    .reg .b64 %rd<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.global.f32 %f1, [%rd2];
    atom.global.add.f32 %f2, [%rd1], %f1;
    ret;
}
"""


def test_atomics_on_floats_are_a_reason() -> None:
    buffers = """
    buffer x bytes=4 role=input dtype=f32 shape=1
    buffer y bytes=4 role=output dtype=f32 shape=1
    """
    steps = "launch m.add grid=1,1,1 block=32,1,1 args=[y, x]"
    plan = plan_of([trace(buffers, ADD, steps)], [["a"]], slots=1, lanes=1)
    prepared = prepare_run(plan, PlanRunOptions(requests=1, backend="cpu"))
    assert obstacles(prepared) == ("bytes need not be equal: kernel `add` adds floats atomically",)


@pytest.mark.parametrize(
    ("dtype", "numpy", "near", "far"),
    [
        (DataType.F32, np.float32, 1 + 1e-6, 1.01),
        (DataType.F64, np.float64, 1 + 1e-12, 1 + 1e-6),
        (DataType.F16, np.float16, 1.001, 1.1),
    ],
)
def test_tolerance(dtype: DataType, numpy: type, near: float, far: float) -> None:
    def content(value: float) -> np.ndarray:
        return np.array([1.0, np.nan, value], numpy).view(np.uint8)

    assert distance(dtype, content(1.0), content(1.0)).error == 0
    assert distance(dtype, content(1.0), content(near)).is_within
    worst = distance(dtype, content(1.0), content(far))
    assert not worst.is_within
    assert worst.element == 2
    assert not distance(dtype, content(1.0), content(np.nan)).is_within


def test_integers_have_to_be_equal() -> None:
    ones = np.ones(4, np.uint32).view(np.uint8)
    other = ones.copy()
    other[4] = 2
    assert distance(DataType.U32, ones, ones).is_within
    assert not distance(DataType.U32, ones, other).is_within


@pytest.mark.parametrize("dtype", [DataType.BF16, DataType.E4M3, DataType.E5M2])
def test_narrow_types_are_read_as_numbers(dtype: DataType) -> None:
    one = {DataType.BF16: b"\x80\x3f", DataType.E4M3: b"\x38", DataType.E5M2: b"\x3c"}[dtype]
    content = np.frombuffer(one, np.uint8)
    assert distance(dtype, content, content).expected == 1.0


STORE = """
.visible .entry store(.param .u64 y, .param .u64 x)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    st.global.u64 [%rd1], %rd2;
    st.global.u64 [%rd1+8], %rd2;
    ret;
}
"""
STORE_BUFFERS = """
buffer s bytes=64 role=state
buffer t bytes=1024 role=temp
buffer y bytes=64 role=output
pointers s @{0:t,8:s+32}
"""


def verify_stored(steps: str, placement: list[str]) -> Prepared:
    plan = plan_of([trace(STORE_BUFFERS, STORE, steps)], [placement], slots=1, lanes=2)
    return prepare_run(plan, PlanRunOptions(requests=3, backend="cpu"))


def test_words_are_compared_by_what_they_point_at() -> None:
    """A launch puts other addresses into words of a state: the same ones on every device."""
    steps = """
    memset t bytes=1024 value=1
    launch m.store grid=1,1,1 block=1,1,1 args=[s, t+512]
    memcpy y t bytes=64
    """
    prepared = verify_stored(steps, ["a"] * 3)
    (model,) = models_of(prepared.opened, prepared.materials)
    outcome = run_inline(prepared, model)
    assert verify_run(outcome, prepared).lanes == 2
    assert outcome.states is not None
    words = [lane["s"][:16].tobytes() for lane in outcome.states]
    assert words[0] == words[1] != bytes(16)
    outcome.states[1]["s"][3] ^= 1  # it points elsewhere
    with pytest.raises(TesseraError, match=r"state `s`: 1 of 64 bytes"):
        verify_run(outcome, prepared)


def test_a_stored_address_is_named_where_results_differ() -> None:
    steps = """
    memset t bytes=1024 value=1
    launch m.store grid=1,1,1 block=1,1,1 args=[t, s]
    memcpy y t bytes=64
    """
    prepared = verify_stored(steps, ["a", "a", "b"])
    assert [found.code for found in prepared.opened.stored_addresses()] == ["TSR2015"]
    (model,) = models_of(prepared.opened, prepared.materials)
    with pytest.raises(TesseraError) as failure:
        verify_run(run_inline(prepared, model), prepared)
    notes = failure.value.diagnostics[0].notes
    assert "the first launch that diverges is #1 `m.store`" in notes[1]
    assert "`m.store` stores an address as data, which may get into output `y`" in notes[2]


def bf16(values: np.ndarray) -> np.ndarray:
    """Bytes of numbers that are rounded to bf16."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x8000) >> 16).astype(np.uint16).view(np.uint8)


def test_rounding_is_no_error_and_one_wrong_element_of_a_million_is() -> None:
    """As a vision model: an element near zero is off by what its neighbours are rounded by."""
    numbers = np.random.default_rng(0).normal(size=1_000_000)
    numbers[5] = 3.4
    numbers[7] = 0.01
    expected = bf16(numbers)
    rounded = numbers.copy()
    rounded[7] += 0.0015
    assert distance(DataType.BF16, expected, bf16(rounded)).is_within
    noise = np.random.default_rng(1).normal(size=numbers.size)
    assert distance(DataType.BF16, expected, bf16(numbers + 0.002 * noise)).is_within
    for wrong in (0.3, -3.4, np.nan):
        other = numbers.copy()
        other[77] += wrong
        found = distance(DataType.BF16, expected, bf16(other))
        assert not found.is_within
        assert found.element == 77


def test_many_small_errors_are_no_rounding() -> None:
    numbers = np.random.default_rng(2).normal(size=10_000)
    found = distance(DataType.BF16, bf16(numbers), bf16(numbers * 1.02))
    assert found.error <= found.tolerance
    assert not found.is_within


def test_one_large_element_does_not_hide_others() -> None:
    numbers = np.random.default_rng(3).normal(size=10_000)
    numbers[0] = 3000.0
    other = numbers.copy()
    other[9] += 40.0
    assert not distance(DataType.BF16, bf16(numbers), bf16(other)).is_within


def test_elements_that_are_a_thousand_times_as_large_hide_nothing() -> None:
    """Hidden states of language models have a few of them."""
    random = np.random.default_rng(1)
    wanted = random.normal(size=1_000_000).astype(np.float32)
    wanted[::100_000] = 5000
    rounded = wanted * (1 + 3e-6 * random.normal(size=wanted.size).astype(np.float32))
    given = wanted.view(np.uint8)
    assert distance(DataType.F32, given, rounded.view(np.uint8)).is_within
    one = rounded.copy()
    one[500_001] += 0.001
    assert not distance(DataType.F32, given, one.view(np.uint8)).is_within
    # All of the others off by less than the limit of an element.
    many = np.where(np.abs(wanted) > 100, wanted, wanted + np.float32(5e-5))
    found = distance(DataType.F32, given, many.view(np.uint8))
    assert found.error <= found.tolerance
    assert not found.is_within


@pytest.mark.parametrize("count", [1_000, 32_768, 1_000_000])
def test_the_worst_of_many_elements_is_off_by_more_than_most(count: int) -> None:
    """As a language model in bf16, against PyTorch on the host: Gaussian errors of 0.8%."""
    random = np.random.default_rng(5)
    numbers = random.normal(size=count)
    rounded = numbers + 0.008 * random.normal(size=count)
    found = distance(DataType.BF16, bf16(numbers), bf16(rounded))
    assert found.is_within
    for place, wrong in ((3, 0.2), (count // 2, -0.15)):
        other = rounded.copy()
        other[place] = numbers[place] + wrong * max(1.0, abs(numbers[place]))
        assert not distance(DataType.BF16, bf16(numbers), bf16(other)).is_within
    # Where the rest is exact, less is a lot.
    other = numbers.copy()
    other[3] += 0.05 * max(1.0, abs(numbers[3]))
    assert not distance(DataType.BF16, bf16(numbers), bf16(other)).is_within


def test_noise_about_zero_is_no_error() -> None:
    random = np.random.default_rng(2)
    wanted = random.normal(size=10_000).astype(np.float32)
    wanted[::2] *= 1e-9  # what is left of sums that cancel out
    other = wanted.copy()
    other[::2] = other[::2][::-1]
    assert distance(DataType.F32, wanted.view(np.uint8), other.view(np.uint8)).is_within


def test_a_result_is_as_exact_as_what_it_is_made_of() -> None:
    numbers = np.random.default_rng(4).normal(size=100).astype(np.float32)
    near = (numbers * 1.003).view(np.uint8)
    assert not distance(DataType.F32, numbers.view(np.uint8), near).is_within
    assert distance(DataType.F32, numbers.view(np.uint8), near, DataType.BF16).is_within
    whole = np.array([1, 2], np.int32).view(np.uint8)
    other = np.array([1, 3], np.int32).view(np.uint8)
    assert not distance(DataType.S32, whole, other, DataType.BF16).is_within
