"""Code for a number of SMs: read, printed, analysed, chosen for each device, proved and run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.load import load
from tessera.frontend.plan.tsp import parse_plan
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.architecture import architecture, runs_on, sms_of
from tessera.ir.graph.access import AccessKind
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.print_trace import print_program, program_digest
from tessera.ir.program.program import Launch, Program, for_arch
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.planning.prices.estimate_costs import best_variant
from tests.helpers.command import tessc
from tests.helpers.rule_cases import touched
from tests.helpers.served import graph_of

KERNEL = """.version 8.0
.target sm_90a
.address_size 64
{variable}.visible .entry fill(.param .u64 y, .param .u32 n)
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    .reg .pred %p;
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r1, [n];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1{more}], %r2;
    ret;
}}
"""


def text(version: int = 2, *, variable: str = "", more: str = "") -> str:
    """A launch whose code for 48 SMs has smaller blocks, and may store elsewhere."""
    whole = KERNEL.format(variable=variable, more="")
    tuned = KERNEL.format(variable=variable, more=more)
    return (
        f"//! tessera.trace {version}\n"
        "//! buffer y bytes=4096 role=output dtype=u32 shape=1024\n"
        f"//! module m\n{whole}//! module m arch=sm_90a:48sm\n{tuned}"
        "//! launch m.fill grid=2,1,1 block=256,1,1 args=[y, u32:512]\n"
        "//! variant sm_90a:48sm grid=8,1,1 block=64,1,1\n"
        "//! launch m.fill grid=2,1,1 block=256,1,1 args=[y+2048, u32:512]\n"
        "//! variant sm_90a:48sm grid=8,1,1 block=64,1,1\n"
    )


def program(**more: str) -> Program:
    return parse_trace(text(**more), "t.ptx")


def test_a_name_says_the_sms_that_code_is_tuned_for() -> None:
    assert sms_of("sm_90a:48sm") == 48
    assert sms_of("sm_90a") == sms_of("sm_90a:0sm") == 0
    assert architecture("sm_90a:48sm sm_90") is None
    assert runs_on("sm_90a:48sm", "sm_90")
    assert not runs_on("sm_90a:48sm", "sm_100")


def test_version_2_is_read_and_printed_and_only_where_it_is_needed() -> None:
    read = program()
    assert [v.arch for v in read.modules[0].variants] == ["sm_90a", "sm_90a:48sm"]
    printed = print_program(read)
    assert printed.startswith("//! tessera.trace 2\n")
    assert parse_trace(printed, "t.ptx") == read
    module = replace(read.modules[0], variants=read.modules[0].variants[:1])
    steps = tuple(replace(s, variants=()) for s in read.steps if isinstance(s, Launch))
    plain = print_program(replace(read, modules=(module,), steps=steps))
    assert plain.startswith("//! tessera.trace 1\n")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (text(version=1), "TSR1153"),
        (text(version=99), "TSR1100"),
        (text().replace("arch=sm_90a:48sm", "arch=sm_90a:sm"), "TSR1153"),
        (text().replace("arch=sm_90a:48sm", "arch=sm_80:48sm"), "TSR1153"),
        (text().replace("variant sm_90a:48sm", "variant sm_90a:47sm"), "TSR1152"),
    ],
)
def test_what_is_wrong_is_refused(wrong: str, code: str) -> None:
    with pytest.raises(TesseraError) as caught:
        parse_trace(wrong, "t.ptx")
    assert code in [diagnostic.code for diagnostic in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("sms", "code"),
    [(132, "sm_90a"), (100, "sm_90a"), (84, "sm_90a"), (48, "sm_90a:48sm"), (16, "sm_90a:48sm")],
)
def test_a_device_gets_the_code_for_about_as_many_sms(sms: int, code: str) -> None:
    read = program()
    launch = next(read.launches())
    variant = best_variant(read, launch, "sm_90a", sms, 132)
    assert variant is not None
    assert variant.arch == code
    assert for_arch(launch, code).grid[0] == (8 if "48" in code else 2)
    assert best_variant(read, launch, "sm_90a") is read.modules[0].variants[0]


def test_every_variant_is_analysed() -> None:
    """The code for 48 SMs stores elsewhere: no step may be taken to leave that alone."""
    (one, _), (two, _) = (graph_of(program(more=more)).nodes for more in ("", "+2048"))
    assert [access.region for access in one.accesses] != [access.region for access in two.accesses]


def test_what_all_variants_write_is_certain() -> None:
    """One leaves out the last words of `y`; both read `x`, which comes first."""
    copy = KERNEL.replace("(.param .u64 y,", "(.param .u64 x, .param .u64 y,").replace(
        "    st.global", "    ld.param.u64 %rd3, [x]; ld.global.u32 %r2, [%rd3];\n    st.global"
    )
    whole = copy.format(variable="", more="")
    given = (
        "//! tessera.trace 2\n//! buffer x bytes=4 role=input\n"
        "//! buffer y bytes=4096 role=output dtype=u32 shape=1024\n"
        f"//! module m\n{whole}//! module m arch=sm_90a:48sm\n{whole}"
        "//! launch m.fill grid=2,1,1 block=256,1,1 args=[x, y, u32:512]\n"
        "//! variant sm_90a:48sm grid=1,1,1 block=64,1,1\n"
    )
    made = parse_trace(given)
    (step,) = AnalysisManager(made).get(AccessRegions).steps
    assert touched(made, step, "y", AccessKind.WRITE) == [(0, 2048)]
    assert touched(made, step, "y", AccessKind.WRITE, must=True) == [(0, 256)]
    assert touched(made, step, "x", AccessKind.READ) == [(0, 4)]


def test_what_some_variant_may_write_may_be_written() -> None:
    """The code for 48 SMs may store the words behind as well, as data say; both read the same."""
    read = KERNEL.replace("    st.global", "    ld.global.u32 %r5, [%rd1];\n    st.global")
    whole = read.format(variable="", more="")
    also = "setp.gt.u32 %p, %r5, 9;\n    @%p st.global.u32 [%rd1+2048], %r2;\n    ret;\n}"
    tuned = whole.replace("ret;\n}", also)
    made = parse_trace(
        "//! tessera.trace 2\n//! buffer y bytes=4096 role=state dtype=u32 shape=1024\n"
        f"//! module m\n{whole}//! module m arch=sm_90a:48sm\n{tuned}"
        "//! launch m.fill grid=2,1,1 block=256,1,1 args=[y, u32:512]\n"
    )
    (step,) = AnalysisManager(made).get(AccessRegions).steps
    assert touched(made, step, "y", AccessKind.WRITE) == [(0, 4096)]
    assert touched(made, step, "y", AccessKind.WRITE, must=True) == [(0, 2048)]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "t.ptx").write_text(text(variable=".global .u32 counter;\n"))
    given = ("--gpus", "h200:84sm,h200:48sm", "--strategy", "kernel", "-o", str(folder / "p.tsp"))
    pinned = ("--pin", "#0=h200-0.0", "--pin", "#1=h200-0.1")
    made = tessc("plan", str(folder / "t.ptx"), *given, *pinned)
    assert made.code == 0, made.err
    return folder / "p.tsp"


def test_a_plan_names_the_code_of_each_device_and_runs(plan: Path) -> None:
    read = parse_plan(plan.read_text())
    sms = {device.name: device.sms for device in read.devices}
    steps = read.replicas[0].traces[0].steps
    assert [(sms[step.device], step.arch) for step in steps] == [
        (84, "sm_90a"),
        (48, "sm_90a:48sm"),
    ]
    ran = tessc("run", str(plan), "--backend", "cpu", "--requests", "2", "--verify")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("has_variables", [True, False])
def test_a_device_holds_the_variables_of_a_module_once(
    tmp_path: Path, *, has_variables: bool
) -> None:
    variable = ".global .u32 counter;\n" if has_variables else ""
    (tmp_path / "t.ptx").write_text(text(variable=variable))
    place = tmp_path / "p.tsp"
    assert tessc("plan", str(tmp_path / "t.ptx"), "--gpus", "h200", "-o", str(place)).code == 0
    read = parse_plan(place.read_text())
    (replica,), (placed,) = read.replicas, read.replicas[0].traces
    steps = (placed.steps[0], replace(placed.steps[1], arch="sm_90a:48sm"))
    changed = replace(replica, traces=(replace(placed, steps=steps),))
    place.write_text(print_plan(replace(read, replicas=(changed,))))
    checked = tessc("check", str(place))
    assert (checked.code != 0) == has_variables
    assert ("its variables are there once" in checked.err) == has_variables


def rows(folder: Path, times: dict[tuple[int, str], float]) -> Path:
    """A profile of both steps, by SMs and code."""
    digest = program_digest(load(folder / "t.ptx"))
    made = [
        {"step": step, "name": "m.fill", "gpu": "h200", "sms": sms, "ns": ns, "variant": code}
        for step in range(2)
        for (sms, code), ns in times.items()
    ]
    data = {"schema": "tessera-profile/1", "program": digest, "rows": made}
    place = folder / "profile.json"
    place.write_text(json.dumps(data))
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.ptx").write_text(text())
    return tmp_path


PINNED = ("--pin", "#0=h200-0.0", "--pin", "#1=h200-0.1")


def planned(folder: Path, *more: str) -> list[tuple[str, float]]:
    """The code and the time of each step, the first on 84 SMs, the second on 48."""
    given = ("--gpus", "h200:84sm,h200:48sm", "--strategy", "kernel", "-o", str(folder / "p.tsp"))
    made = tessc("plan", str(folder / "t.ptx"), *given, *PINNED, *more)
    assert made.code == 0, made.err
    checked = tessc("check", str(folder / "p.tsp"))
    assert checked.code == 0, checked.err
    steps = parse_plan((folder / "p.tsp").read_text()).replicas[0].traces[0].steps
    return [(step.arch, step.predicted_ns) for step in steps]


def test_a_plan_takes_the_code_that_was_measured_to_be_faster(folder: Path) -> None:
    whole, tuned = "sm_90a", "sm_90a:48sm"
    times = {(84, whole): 900.0, (84, tuned): 500.0, (48, whole): 700.0, (48, tuned): 800.0}
    place = rows(folder, times)
    assert planned(folder, "--profile", str(place)) == [(tuned, 500.0), (whole, 700.0)]
    explained = tessc(
        "plan",
        str(folder / "t.ptx"),
        "--gpus",
        "h200:84sm,h200:48sm",
        *PINNED,
        "--profile",
        str(place),
        "--explain",
        "#0",
    )
    assert tuned in explained.out.decode()
    # A later profile of a step and device stands for all that earlier ones say of them.
    other = rows(folder, {(84, whole): 600.0}).rename(folder / "other.json")
    place = rows(folder, times)
    both = ("--profile", str(place), "--profile", str(other))
    assert planned(folder, *both) == [(whole, 600.0), (whole, 700.0)]


def test_variants_in_a_profile_are_checked(folder: Path) -> None:
    for times, said in (
        ({(84, "sm_90a:47sm"): 5.0}, "is of code for sm_90a:47sm, and plans run that for"),
        ({(84, "sm_90a"): 5.0, (84, ""): 6.0}, "are both of step #0 on 84 SMs"),
    ):
        made = tessc(
            "plan",
            str(folder / "t.ptx"),
            "--gpus",
            "h200:84sm,h200:48sm",
            "--profile",
            str(rows(folder, times)),
        )
        assert made.code == 1
        assert "TSR3015" in made.err
        assert said in made.err


def test_code_of_a_module_with_variables_is_not_chosen_step_by_step(tmp_path: Path) -> None:
    """A device has the variables once, so it loads the module once."""
    (tmp_path / "t.ptx").write_text(text(variable=".global .u32 counter;\n"))
    made = tessc(
        "plan",
        str(tmp_path / "t.ptx"),
        "--gpus",
        "h200:84sm,h200:48sm",
        "--profile",
        str(rows(tmp_path, {(84, "sm_90a:48sm"): 5.0})),
    )
    assert made.code == 1
    assert "plans run that for sm_90a there" in made.err
