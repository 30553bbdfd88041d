"""`tessc profile` against the stand-in driver: every step measured, and the file read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver, DriverError, GpuFacts
from tessera.backend.cuda.measure import neighbours, together
from tessera.backend.cuda.measure import profile as measuring
from tessera.diagnostics import TesseraError, error
from tessera.driver.load import load
from tessera.driver.profile import profile_trace as profiling
from tessera.driver.profile.profile_trace import (
    ProfileOptions,
    _share,
    find_card,
    profile,
    profile_text,
    program_digest,
)
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.frontend.machine.profile import parse_profile
from tests.helpers.command import tessc
from tests.helpers.fake_cuda import CUresult, FakeCuda
from tests.helpers.traces import HEADER

TRACE = Path(__file__).parents[4] / "examples" / "traces" / "mlp.ptx"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr(measuring, "_MOST_LAUNCHES", 2)
    monkeypatch.setattr(measuring, "_SIZES", (1 << 12, 1 << 14))
    monkeypatch.setattr(measuring, "_WARM_UP_NS", 0)
    monkeypatch.setattr(measuring, "_PAUSE_NS", 0)
    monkeypatch.setattr(together, "_MOST_RUNS", 6)
    monkeypatch.setattr(neighbours, "_MEMORY_BYTES", 1 << 12)
    monkeypatch.setattr(FakeCuda, "cuDeviceGetName", lambda self, size, device: (0, b"NVIDIA H200"))


def run(
    devices: str = "h200", trace: Path = TRACE, *, computes: bool = False, **more: Any
) -> tuple[dict[str, Any], FakeCuda]:
    fake = FakeCuda()
    fake.computes = computes
    options = ProfileOptions(devices=devices, repeats=3)
    return profile(trace, options, driver=Driver(fake), **more), fake


def test_every_step_has_a_time_and_the_file_reads_back() -> None:
    told: list[tuple[int, int | None]] = []
    found, fake = run(on_progress=lambda now: told.append((now.done, now.total)))
    steps = list(load(TRACE).work())
    assert [row["step"] for row in found["rows"]] == list(range(len(steps)))
    assert all(row["cold_ns"] >= row["warm_ns"] > 0 for row in found["rows"])
    assert told[-1] == (len(steps), len(steps))
    assert {one["kind"] for one in found["transfers"]} == {"device", "in", "out"}
    read = parse_profile(profile_text(found))
    assert read.program_digest == program_digest(load(TRACE))
    assert [row.ns for row in read.rows] == [row["ns"] for row in found["rows"]]
    assert not fake.allocated


def test_the_steps_add_up_to_the_whole_where_they_can() -> None:
    found, _ = run()
    (whole,) = found["wholes"]
    warm = sum(row["warm_ns"] for row in found["rows"])
    total = sum(row["ns"] for row in found["rows"])
    assert total == pytest.approx(max(whole["ns"], warm), rel=1e-3)


def test_what_no_step_accounts_for_is_the_way_between_steps() -> None:
    pair = measuring.TimePair(warm_ns=10, cold_ns=20)
    steps = tuple(measuring.StepTimes(step=i, alone=pair) for i in range(4))
    for whole, share, gap in ((30, 0, 0), (50, 0.25, 0), (80, 1, 0), (100, 1, 5)):
        times = measuring.DeviceTimes(
            sms=132, clock_mhz=0, whole_ns=whole, steps=steps, transfers=()
        )
        assert _share(times) == (share, gap)


QUICK = """.version 7.0
.target sm_75
.address_size 64
.visible .entry neighbour_compute(.param .u64 a, .param .u64 b) { ret; }
.visible .entry neighbour_memory(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{ ret; }
.visible .entry measure_clock(.param .u64 a, .param .u64 b) { ret; }
"""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The neighbours' own code would keep the stand-in busy for minutes."""
    place = tmp_path / "neighbours.ptx"
    place.write_text(QUICK)
    monkeypatch.setattr(neighbours, "_PTX", place)


IN_PLACE = f"""//! tessera.trace 1
//! buffer x bytes=4 role=input dtype=s32 shape=1
//! buffer y bytes=4 role=output dtype=s32 shape=1
//! buffer s bytes=4 role=state dtype=s32 shape=1
//! buffer n bytes=4 role=state dtype=s32 shape=1
//! resident data=t.npz
//! module m
{HEADER}.visible .entry add(.param .u64 to, .param .u64 of)
{{ .reg .u64 %a<2>; .reg .u32 %v<3>;
   ld.param.u64 %a0, [to]; ld.param.u64 %a1, [of];
   ld.global.u32 %v0, [%a0]; ld.global.u32 %v1, [%a1]; add.u32 %v2, %v0, %v1;
   st.global.u32 [%a0], %v2; ret; }}
//! launch m.add grid=1,1,1 block=1,1,1 smem=0 args=[s, x]
//! launch m.add grid=1,1,1 block=1,1,1 smem=0 args=[n, s]
//! memcpy y s bytes=4
"""


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """A trace whose steps change what they read."""
    trace = tmp_path / "t.ptx"
    trace.write_text(IN_PLACE)
    words = {"x": np.array([5], np.int32), "s": np.array([70], np.int32)}
    np.savez(tmp_path / "t.npz", **words, n=np.array([1000], np.int32))
    return trace


@pytest.mark.usefixtures("quick")
def test_a_slice_is_measured_beside_a_neighbour(counting: Path) -> None:
    found, fake = run("h200:84sm", counting)
    steps = len(found["rows"])
    for kind in ("compute", "memory"):
        beside = [n for n, sms in fake.launched if (n, sms) == (f"neighbour_{kind}", 48)]
        assert steps <= len(beside) <= 3 * steps
    assert {row["sms"] for row in found["rows"]} == {84}
    assert not fake.allocated


@pytest.mark.usefixtures("quick")
def test_slices_are_measured_that_are_busy_together(
    counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for both, and a whole GPU by itself; states that say where to go on are put back, or
    `s` would count on."""
    counted: list[tuple[float, ...] | None] = []
    measure = together.together_ns

    def watched(every: list[Any], *more: Any) -> tuple[float, ...] | None:
        counted.append(measure(every, *more))
        lanes = [(one, lane) for one in every for lane in range(one.model.lowered.lanes)]
        states = [backend.read_states(lane) for backend, lane in lanes]
        assert {int(state["s"].view(np.int32)[0]) for state in states} == {70 + 5}
        return counted[-1]

    monkeypatch.setattr(together, "together_ns", watched)
    monkeypatch.setattr(together, "_LEAST_NS", 0)
    monkeypatch.setattr(profiling, "_MOST_SLOTS", 2)  # more are tried where two do not fill it
    found, fake = run("h200,h200:84sm,h200:48sm", counting, computes=True)
    read = parse_profile(profile_text(found))
    assert [one.sms for one in read.together] == [132, 84, 48]
    for key, own, times in (
        ("steady_ns", counted[0::2], [one.steady_ns for one in read.together]),
        ("together_ns", counted[1::2], [one.ns for one in read.together]),
    ):
        alone, both = own
        assert alone is not None
        assert both is not None
        assert [whole[key] for whole in found["wholes"]] == times == [*alone, *both]
    assert not fake.allocated


@pytest.mark.usefixtures("quick")
def test_short_requests_say_nothing_of_slices_that_are_busy_together(counting: Path) -> None:
    found, fake = run("h200:84sm", counting)
    assert "together_ns" not in found["wholes"][0]
    assert not fake.allocated


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("lacking", ["measured", "beside"])
def test_without_memory_for_two_nothing_is_measured_together(
    counting: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """Two requests may not even fit on the slice itself, where one did. It is tried once."""
    monkeypatch.setattr(together, "_LEAST_NS", 0)
    opened: list[int] = []
    start = profiling.TraceTimer._model

    def fails(timer: Any, gpu: Any, sms: int, devices: tuple[str, ...], slots: int) -> Any:
        opened.append(slots)
        if devices == (lacking,):
            raise TesseraError(error("TSR5102", "too little memory"))
        return start(timer, gpu, sms, devices, slots)

    monkeypatch.setattr(profiling.TraceTimer, "_model", fails)
    found, fake = run("h200:84sm,h200:48sm", counting)
    assert opened == [1, 1, 1, 2, 2, 1]
    assert not any({"steady_ns", "together_ns"} & set(whole) for whole in found["wholes"])
    assert not fake.allocated


def together_with(
    monkeypatch: pytest.MonkeyPatch,
    trace: Path,
    fake: FakeCuda,
    begin: Callable[[int], None],
    *,
    hangs: bool = True,
) -> None:
    """Measure requests together; `begin` hears of each that is handed over there.

    What hangs is given up soon; what does not has the time that a busy machine may need.
    """
    handed: list[int] = []
    hand_over = together._Repeating.hand_over

    def told(each: Any) -> None:
        handed.append(len(handed))
        begin(handed[-1])
        hand_over(each)

    def two_at_a_time(timer: Any, entry: Any, ordinal: int) -> dict[str, float | None]:
        return {"together_ns": timer.together(entry, ordinal, 2)}

    monkeypatch.setattr(profiling, "busy_times", two_at_a_time)
    monkeypatch.setattr(together, "_LEAST_NS", 0)
    monkeypatch.setattr(together, "_MOST_RUNS", 500)
    monkeypatch.setattr(together, "_AHEAD_NS", 0)
    monkeypatch.setattr("tessera.backend.cuda.backend._END_S", 0.3 if hangs else 60.0)
    monkeypatch.setattr(together._Repeating, "hand_over", told)
    options = ProfileOptions(devices="h200:84sm", repeats=3, limit_s=0.2 if hangs else 60.0)
    profile(trace, options, driver=Driver(fake))


@pytest.mark.usefixtures("quick")
def test_requests_that_hang_together_do_not_fill_the_queues(
    counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver whose queues are full makes who hands over wait, without an end."""
    fake, handed = FakeCuda(), []

    def begin(number: int) -> None:
        handed.append(number)
        fake.hang = ("add",) if number == 20 else fake.hang

    with pytest.raises(TesseraError) as caught:
        together_with(monkeypatch, counting, fake, begin)
    assert caught.value.diagnostics[0].code == "TSR5052"
    assert "beside itself" in str(caught.value.diagnostics[0].headline)
    assert 20 < len(handed) <= 20 + 4 * together._LEAST_AHEAD


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("hangs", [False, True])
def test_ctrl_c_gives_all_back_unless_something_hangs(
    counting: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """To free memory would wait for what hangs, and Ctrl-C be of no use."""
    fake = FakeCuda()
    freed = 0

    def begin(number: int) -> None:
        nonlocal freed
        if number == 20:
            fake.hang = ("add",) if hangs else ()
        if number == 22:
            freed = fake.calls["cuMemFree"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together_with(monkeypatch, counting, fake, begin, hangs=hangs)
    assert bool(fake.allocated) == hangs
    assert (fake.calls["cuMemFree"] == freed) == hangs
    assert bool(fake.greens) == hangs


@pytest.mark.usefixtures("quick")
def test_ctrl_c_while_a_step_hangs_frees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda(hang=("linear",))
    is_done = Driver.is_done

    def interrupted(driver: Driver, event: Any) -> bool:
        if not is_done(driver, event) and any(node.label == "linear" for node in fake.pending):
            monkeypatch.setattr(Driver, "free", lambda *_: pytest.fail("it would wait"))
            raise KeyboardInterrupt
        return is_done(driver, event)

    monkeypatch.setattr("tessera.backend.cuda.backend._END_S", 0.3)
    monkeypatch.setattr(Driver, "is_done", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile(TRACE, ProfileOptions(devices="h200", repeats=3), driver=Driver(fake))


def test_requests_that_end_side_by_side_are_not_counted_twice() -> None:
    """Two slots whose requests end in pairs, every 20 ns: one request takes 10."""
    ended = [at for pair in range(1, 9) for at in (20 * pair, 20 * pair + 1)]
    for start in range(0, 100, 7):
        assert together._each_ns(ended, start, 161, 2) == pytest.approx(10, abs=0.3)
    assert together._each_ns([30, 31], 15, 31, 2) == 31 / 2
    assert together._each_ns([40], 20, 40, 2) == 40


@pytest.mark.usefixtures("quick")
def test_a_neighbour_that_ends_too_early_is_tried_for_longer(
    counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens there is an answer: a time, or none."""
    monkeypatch.setattr(Driver, "is_done", _done_at_once)
    found, fake = run("h200:48sm", counting)
    beside = [n for n, sms in fake.launched if (n, sms) == ("neighbour_memory", 84)]
    assert len(beside) == 3 * len(found["rows"])
    assert not any("beside_memory_ns" in row for row in found["rows"])


def _done_at_once(driver: Driver, event: Any) -> bool:
    driver.cu._pump(None)
    return True


@pytest.mark.usefixtures("quick")
def test_a_step_that_never_ends_is_named() -> None:
    fake = FakeCuda(hang=("linear",))
    options = ProfileOptions(devices="h200", repeats=3, limit_s=0.2)
    with pytest.raises(TesseraError) as caught:
        profile(TRACE, options, driver=Driver(fake))
    found = caught.value.diagnostics[0]
    assert found.code == "TSR5052"
    assert caught.value.exit_code == 6
    assert "`linear`" in str(found.headline)
    assert fake.allocated, "to free memory would wait for the kernel"


@pytest.mark.usefixtures("quick")
def test_steps_find_what_they_would_find_in_a_request(
    counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that a step adds to is measured often, and counts once; inputs are in place."""
    seen: dict[str, int] = {}
    close = measuring.Profiler.close

    def look(self: measuring.Profiler) -> None:
        for name, content in self.backend.read_states(0).items():
            seen[name] = int(content.view(np.int32)[0])
        close(self)

    monkeypatch.setattr(measuring.Profiler, "close", look)
    assert len(run(trace=counting, computes=True)[0]["rows"]) == 3
    assert seen == {"s": 75, "n": 1075}


@pytest.mark.usefixtures("quick")
def test_a_library_call_that_cannot_be_captured_is_made_again_and_again(
    counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def prepare(call: Any, address_of: Any, ordinal: int, stream: Any, **_: Any) -> Any:
        def hand_over() -> tuple[int]:
            if stream.capture is not None:
                raise DriverError(call.operator, 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
            made.append(call.operator)
            return (0,)

        return hand_over

    monkeypatch.setattr("tessera.backend.cuda.torch_ops.prepare_call", prepare)
    text = IN_PLACE.replace(
        "memcpy y s bytes=4", "op aten::neg reads=[s:s32] writes=[y:s32] attrs={}"
    )
    counting.write_text(text.replace("y:s32", "y:s32[1]").replace("s:s32", "s:s32[1]"))
    rows = run(trace=counting)[0]["rows"]
    assert [row["name"] for row in rows][-1] == "aten::neg"
    assert "variant" not in rows[-1]
    assert len(made) > 2 * 3


@pytest.mark.usefixtures("quick")
def test_a_step_that_faults_is_a_fault_in_words(counting: Path) -> None:
    counting.write_text(IN_PLACE.replace("ret; }", "trap; }"))
    with pytest.raises(TesseraError) as caught:
        run(trace=counting, computes=True)
    assert caught.value.diagnostics[0].code == "TSR5106"


@pytest.mark.usefixtures("quick")
def test_a_profile_says_how_it_came_about_and_plans_read_it(counting: Path, tmp_path: Path) -> None:
    found, _ = run("h200:84sm,h200:48sm", counting)
    assert set(found["machine"]) == {
        "gpu",
        "cuda",
        "driver",
        "sms",
        "repeats",
        "host_call_ns",
        "host_byte_ns",
    }
    assert all("clock_mhz" in whole for whole in found["wholes"])
    launches = [row for row in found["rows"] if "variant" in row]
    assert {row["variant"] for row in launches} == {"sm_80"}
    for name, sms in (("a.json", 84), ("b.json", 48)):
        rows = [row for row in found["rows"] if row["sms"] == sms]
        (tmp_path / name).write_text(profile_text({**found, "rows": rows}))
    outcome = tessc(
        "plan",
        str(counting),
        "--gpus",
        "h200:84sm,h200:48sm",
        "--strategy",
        "dp",
        "-o",
        str(tmp_path / "p.tsp"),
        "--profile",
        str(tmp_path / "a.json"),
        "--profile",
        str(tmp_path / "b.json"),
    )
    assert outcome.code == 0, outcome.err
    assert "TSR3014" not in outcome.err, "no duration is an estimate"


def test_a_gpu_that_is_not_here() -> None:
    with pytest.raises(TesseraError) as caught:
        run("a100")
    assert caught.value.diagnostics[0].code == "TSR5055"
    assert caught.value.exit_code == 4


def test_a_gpu_that_another_program_fills() -> None:
    fake = FakeCuda()
    fake.cuDevicePrimaryCtxRetain = lambda _: (CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)
    with pytest.raises(TesseraError, match="TSR5102"):
        profile(TRACE, ProfileOptions(devices="h200"), driver=Driver(fake))


CARDS = {
    "NVIDIA A100-SXM4-80GB": (108, "a100-80g-sxm"),
    "NVIDIA A100-PCIE-40GB": (108, "a100-40g-pcie"),
    "NVIDIA A100 80GB PCIe": (108, "a100-80g-pcie"),
    "NVIDIA H100 80GB HBM3": (132, "h100-sxm"),
    "NVIDIA H100 PCIe": (114, "h100-pcie"),
    "NVIDIA H200": (132, "h200"),
    "NVIDIA L40S": (142, "l40s"),
    "NVIDIA A10G": (80, "a10g"),
    "NVIDIA A10": (72, "a10"),
    "Tesla T4": (40, "t4"),
    "Tesla V100-SXM2-32GB": (80, "v100-sxm2-32g"),
    "Tesla V100-SXM2-16GB": (80, None),
    "NVIDIA GeForce RTX 4090": (128, "rtx4090"),
    "NVIDIA GeForce RTX 3090": (82, None),
    "NVIDIA GeForce RTX 4090 D": (114, None),
    "NVIDIA RTX A6000": (84, None),
    "NVIDIA RTX 6000 Ada Generation": (142, "rtx-6000-ada"),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (188, "rtx-pro-6000-blackwell-server"),
}


@pytest.mark.parametrize("name", CARDS)
def test_a_gpu_is_measured_under_its_own_name_only(name: str) -> None:
    """A name of the table means one model: not another of its family, nor with other SMs."""
    sms, key = CARDS[name]
    card = GpuFacts(ordinal=3, name=name, capability=(9, 0), sms=sms, memory_bytes=1)
    for gpu in gpu_table().values():
        if gpu.key == key:
            assert find_card(gpu, (card,)) == 3
            continue
        with pytest.raises(TesseraError, match="TSR5055") as caught:
            find_card(gpu, (card,))
        assert caught.value.diagnostics[0].notes == (f"it has {name} ({sms} SMs)",)


def test_a_device_that_is_named_twice_is_measured_once() -> None:
    found, _ = run("h200,2xh200")
    assert len(found["wholes"]) == 1
    assert found["wholes"][0]["card"] == "NVIDIA H200"
    parse_profile(profile_text(found))


def test_a_step_without_any_time_is_a_row_that_plans_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Driver, "elapsed_ns", lambda self, start, end: 0)
    found, _ = run()
    read = parse_profile(profile_text(found))
    assert {row.ns for row in read.rows} == {0.1}


@pytest.mark.parametrize(
    ("devices", "code"), [("h20O", "TSR3001"), ("h200:500sm", "TSR3002"), ("", "TSR3002")]
)
def test_devices_that_there_are_not_are_told_without_a_gpu(devices: str, code: str) -> None:
    with pytest.raises(TesseraError, match=code):
        profile(TRACE, ProfileOptions(devices=devices), driver=None)


@pytest.mark.parametrize("limit", ["nan", "inf"])
def test_a_limit_that_never_comes_is_refused(limit: str) -> None:
    outcome = tessc("profile", str(TRACE), "--devices", "h200", "--time-limit", limit)
    assert outcome.code == 2
    with pytest.raises(ValueError, match="time limit"):
        profile(TRACE, ProfileOptions(devices="h200", limit_s=float(limit)))


def test_steps_that_are_alike_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    step = measuring.Profiler._step

    def counted(me: measuring.Profiler, number: Any) -> Any:
        measured.append(number)
        return step(me, number)

    monkeypatch.setattr(measuring.Profiler, "_step", counted)
    count = len(list(load(TRACE).work()))
    keys = ["a", "b"] * count
    monkeypatch.setattr(measuring, "step_keys", lambda program, graph, arches: keys)
    found, fake = run()
    rows = found["rows"]
    assert [row["step"] for row in rows] == list(range(count))
    assert sorted(number % 2 for number in measured) == [0, 1]
    assert len({row["warm_ns"] for row in rows[::2]}) == 1
    assert not fake.allocated


TUNED = """//! tessera.trace 2
//! buffer x bytes=512 role=input dtype=s32 shape=128
//! buffer y bytes=512 role=output dtype=s32 shape=128
//! buffer z bytes=512 role=output dtype=s32 shape=128
//! module m
{kernel}//! module m arch=sm_90a:48sm
{kernel}//! module m arch=sm_90a:84sm
{kernel}//! launch m.copy grid=4,1,1 block=32,1,1 smem=0 args=[y, x]
//! variant sm_90a:48sm grid=1,1,1 block=128,1,1
//! variant sm_90a:84sm grid=2,1,1 block=64,1,1
//! memcpy z y bytes=512
"""
COPY = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 of)
{ .reg .u64 %a<6>; .reg .u32 %v<5>;
   ld.param.u64 %a0, [to]; ld.param.u64 %a1, [of];
   mov.u32 %v0, %ctaid.x; mov.u32 %v1, %ntid.x; mov.u32 %v2, %tid.x;
   mad.lo.u32 %v3, %v0, %v1, %v2; mul.wide.u32 %a2, %v3, 4;
   add.u64 %a3, %a0, %a2; add.u64 %a4, %a1, %a2;
   ld.global.u32 %v4, [%a4]; st.global.u32 [%a3], %v4; ret; }
"""


def test_all_code_of_a_step_is_measured_and_the_whole_with_the_fastest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "t.ptx"
    place.write_text(TUNED.format(kernel=COPY))
    slow = {"sm_90a": 3.0, "sm_90a:48sm": 1.0, "sm_90a:84sm": 2.0}
    wholes: list[tuple[str, ...]] = []
    step, whole = measuring.Profiler._step, measuring.Profiler._whole_ns

    def timed(self: Any, number: Any) -> Any:
        times = step(self, number)
        factor = slow.get(self.backend.model.traces[0].arches[number], 1.0)
        pair = measuring.TimePair(warm_ns=100 * factor, cold_ns=100 * factor)
        return measuring.StepTimes(step=times.step, alone=pair)

    def noted(self: Any) -> float:
        wholes.append(self.backend.model.traces[0].arches)
        return whole(self)

    monkeypatch.setattr(measuring.Profiler, "_step", timed)
    monkeypatch.setattr(measuring.Profiler, "_whole_ns", noted)
    found, fake = run(trace=place)
    times = {(row["step"], row.get("variant", "")): row["warm_ns"] for row in found["rows"]}
    assert times == {(0, code): 100 * factor for code, factor in slow.items()} | {(1, ""): 100.0}
    assert wholes == [("sm_90a:48sm", "")]
    assert len(parse_profile(profile_text(found)).rows) == 4
    assert not fake.allocated
