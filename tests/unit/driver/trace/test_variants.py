"""Code of a second capture as variants for a number of SMs, and what the second must share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.trace import tune
from tessera.driver.trace.capture_trace import TraceOptions
from tessera.driver.trace.tune import with_code_for
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import Launch, Program, for_arch
from tests.helpers.command import tessc

KERNEL = """.version 8.0
.target sm_90a
.address_size 64
{more}.visible .entry {name}(.param .u64 y{parameters})
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [y];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], {value};
    ret;
}}
"""


def kernel(name: str = "fill", value: str = "%r2", parameters: str = "", more: str = "") -> str:
    return KERNEL.format(name=name, value=value, parameters=parameters, more=more)


def traced(
    *texts: str,
    blocks: int = 64,
    names: tuple[str, ...] = ("fill", "fill", "fill"),
    modules: tuple[int, ...] = (0, 0, 0),
    more: str = "",
    size: int = 4096,
) -> Program:
    """Three launches, each by a module, that fill 256 words each; `blocks` threads a block."""
    lines = [f"//! tessera.trace 1\n//! buffer y bytes={size} role=output dtype=u32"]
    lines += [f"//! module m{n}\n{text}" for n, text in enumerate(texts)]
    for number, (module, name) in enumerate(zip(modules, names, strict=True)):
        grid = f"grid={256 // blocks},1,1 block={blocks},1,1"
        lines.append(f"//! launch m{module}.{name} {grid} args=[y+{1024 * number}]")
    return parse_trace("\n".join(lines) + "\n" + more, "t.ptx")


def shapes(program: Program) -> list[list[tuple[str, tuple[int, ...]]]]:
    """By launch all code that it may be made with, and how many blocks that takes."""
    return [
        [
            (v.arch, for_arch(launch, v.arch).grid[:1])
            for v in program.modules[launch.module].variants
        ]
        for launch in program.launches()
    ]


def test_other_tiles_become_variants_and_read_back() -> None:
    tuned = with_code_for(traced(kernel()), traced(kernel(value="%r3"), blocks=32), 48)
    assert (tuned.problem, tuned.launches) == ("", 3)
    text = print_program(tuned.program)
    assert text.startswith("//! tessera.trace 2\n")
    assert shapes(parse_trace(text, "t.ptx")) == [[("sm_90a", (4,)), ("sm_90a:48sm", (8,))]] * 3
    twice = with_code_for(parse_trace(text, "t.ptx"), traced(kernel(value="%r4"), blocks=128), 84)
    assert [arch for arch, _ in shapes(twice.program)[0]] == [
        "sm_90a",
        "sm_90a:48sm",
        "sm_90a:84sm",
    ]
    assert print_program(parse_trace(print_program(twice.program), "t.ptx")) == print_program(
        twice.program
    )


def test_a_kernel_of_another_name_gets_that_of_the_first() -> None:
    other = traced(kernel("fill_8", "%r3"), names=("fill_8",) * 3, blocks=32)
    tuned = with_code_for(traced(kernel()), other, 48)
    assert tuned.launches == 3
    (_, variant) = tuned.program.modules[0].variants
    assert [k.name for k in variant.ptx.kernels()] == ["fill"]
    assert "fill_8" not in variant.text


def test_launches_of_one_module_may_get_different_code() -> None:
    texts = (kernel(value="%r3"), kernel(), kernel(value="%r4"))
    tuned = with_code_for(traced(kernel()), traced(*texts, modules=(0, 1, 2)), 48)
    assert tuned.launches == 2
    program = parse_trace(print_program(tuned.program), "t.ptx")
    assert len(program.modules) == len({m.name for m in program.modules}) == 3
    values = [
        [v.text.split("[%rd1], ")[1].split(";")[0] for v in program.modules[x.module].variants]
        for x in program.launches()
    ]
    assert values == [["%r2", "%r3"], ["%r2"], ["%r2", "%r4"]]


def test_what_is_the_same_has_no_variant() -> None:
    program = traced(kernel())
    tuned = with_code_for(program, traced(kernel()), 48)
    assert (tuned.launches, tuned.problem) == (0, "")
    assert print_program(tuned.program) == print_program(program)
    blocks = with_code_for(program, traced(kernel(), blocks=32), 48)
    assert blocks.launches == 3  # the same code, launched otherwise


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (traced(kernel(), size=8192), "other buffers (`y`)"),
        (traced(kernel(), more="//! memset y bytes=4 value=0x00\n"), "4 steps, and not 3"),
        (
            replace(
                traced(kernel()),
                steps=tuple(reversed([*traced(kernel()).steps])),
            ),
            "step 0 (`fill`) has other arguments",
        ),
    ],
)
def test_calls_that_are_not_the_same_steps_are_left_alone(other: Program, said: str) -> None:
    """Plans choose the code of every step by itself, so nothing else may differ."""
    program = traced(kernel())
    tuned = with_code_for(program, other, 48)
    assert said in tuned.problem
    assert tuned.program is program


@pytest.mark.parametrize("more", ["parameters", "variables"])
def test_code_with_other_parameters_or_with_variables_is_not_taken(more: str) -> None:
    if more == "parameters":
        program, other = traced(kernel()), kernel(value="%r3", parameters=", .param .u32 n")
        second = traced(kernel(value="%r3"))
        module = second.modules[0]
        text = parse_trace(
            f"//! tessera.trace 1\n//! buffer y bytes=8 role=output\n//! module m0\n{other}", "o"
        ).modules[0]
        second = replace(second, modules=(replace(module, variants=text.variants),))
    else:
        variable = ".global .u32 counter;\n"
        program, second = traced(kernel(more=variable)), traced(kernel(value="%r3", more=variable))
    assert with_code_for(program, second, 48).launches == 0


# --- slices -------------------------------------------------------------------------------------


def test_slices_are_named_as_devices_are() -> None:
    assert tune.slices_of("h200,h200:84sm,h200:48sm,h200:84sm,h200:132sm") == (84, 48)
    assert tune.slices_of("") == ()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"tune": "h200:48sm,a100:20sm"}, "TSR6007", "one GPU"),
        ({"tune": "h200:48sm", "route": "eager"}, "TSR6007", "nothing to tune"),
        ({"tune": "h200:0sm"}, "TSR3002", "cannot have 0"),
        ({"tune": "nonsense"}, "TSR", "nonsense"),
    ],
)
def test_slices_that_make_no_sense_are_refused(
    options: dict[str, str], code: str, said: str
) -> None:
    with pytest.raises(TesseraError) as caught:
        TraceOptions(**options)
    assert caught.value.diagnostics[0].code.startswith(code)
    assert said in str(caught.value)


def test_the_command_refuses_them_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("raise SystemExit(9)\n")
    given = ("trace", f"{tmp_path}/m.py:f", "-o", str(tmp_path / "o.ptx"))
    told = tessc(*given, "--tune", "h200:48sm,a100")
    assert told.code == 1
    assert "TSR6007" in told.err


def captured(program: Program) -> Any:
    return SimpleNamespace(raw=program, read=None)


def test_a_slice_that_fails_costs_its_own_code_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slice is refused, the second has other steps, the third leaves other bytes."""
    import contextlib

    from tessera.diagnostics import error
    from tessera.frontend.capture import same_results

    base = traced(kernel())
    others = {
        84: TesseraError(error("TSR5105", "cannot be cut")),
        72: traced(kernel(), size=8192),
        60: traced(kernel(value="%r3"), blocks=16),
        48: traced(kernel(value="%r3"), blocks=32),
    }

    @contextlib.contextmanager
    def opened(sms: int) -> Any:
        yield sms

    def again(sms: Any) -> Any:
        other = others[sms]
        if isinstance(other, TesseraError):
            raise other
        return captured(other)

    def draft(raw: Program, read: Any) -> Any:
        return SimpleNamespace(program=raw, written=frozenset({"y"}))

    def differing(call: Any, other: Any, written: Any) -> str | None:
        return "y" if next(other.raw.launches()).block[0] == 16 else None

    monkeypatch.setattr(tune, "opened_slice", opened)
    monkeypatch.setattr(tune, "draft_program", draft)
    monkeypatch.setattr(same_results, "differing", differing)
    told: list[Any] = []
    text = ",".join(f"h200:{sms}sm" for sms in others)
    made = tune.tuned_for_slices(base, captured(base), text, again, told.append)
    assert [d.code for d in made.findings] == ["TSR6006"] * 3
    said = [str(d.headline) for d in made.findings]
    assert "84 SMs: cannot be cut" in said[0]
    assert "72 SMs: the call has other buffers" in said[1]
    assert "60 SMs: `y` holds something else" in said[2]
    assert [arch for arch, _ in shapes(made.program)[0]] == ["sm_90a", "sm_90a:48sm"]
    assert [isinstance(step, Launch) for step in made.program.steps] == [True] * 3
    assert len(told) == 4
