"""The comparison with the host notices what is wrong: regions and results are changed by hand."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from tests.oracle.check import Stated, analysed, cpu_problems, region_problems, tightness
from tests.oracle.recorded import Case, read


@functools.cache
def case(name: str = "form_000.nvrtc") -> Case:
    return next(found for found in read() if found.id == name)


def changed(stated: dict[int, Stated], **flags: object) -> dict[int, Stated]:
    return {number: replace(said, **flags) for number, said in stated.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "text"),
    [("may", "written outside"), ("must", "surely written"), ("read", "read outside")],
)
def test_a_region_that_is_wrong(field: str, text: str) -> None:
    chosen = case("alias_copy_apart.nvrtc")
    _, stated, _ = analysed(chosen)
    assert list(region_problems(chosen, stated)) == []
    size = chosen.buffers[0].bytes
    flags = np.full(size, field == "must")
    wrong = changed(dict(stated), **{field: flags})
    assert any(text in problem for problem in region_problems(chosen, wrong))


def test_a_region_that_is_wide() -> None:
    chosen = case("alias_copy_apart.nvrtc")
    _, stated, _ = analysed(chosen)
    assert tightness(chosen, stated, False).exact
    every = np.full(chosen.buffers[0].bytes, True)
    none = ~every
    assert tightness(chosen, changed(dict(stated), read=every), False).extra_read > 0
    assert tightness(chosen, changed(dict(stated), may=every), False).extra_write > 0
    assert tightness(chosen, changed(dict(stated), must=none), False).unproven > 0


def test_a_result_that_is_wrong() -> None:
    chosen = case()
    program, _, _ = analysed(chosen)
    run = chosen.runs[0]
    assert list(cpu_problems(chosen, program, [run])) == []
    buffer, start, left = run.left[0]
    other = replace(run, left=((buffer, start, bytes([left[0] ^ 1]) + left[1:]), *run.left[1:]))
    assert any("not" in problem for problem in cpu_problems(chosen, program, [other]))


def test_a_log_that_is_wrong() -> None:
    chosen = case("alias_copy_apart.nvrtc")
    program, _, _ = analysed(chosen)
    run = chosen.runs[0]
    touched = run.touched[0]
    for other, text in (
        (replace(touched, writes=()), "written by the CPU backend only"),
        (replace(touched, writes=((0, 512),)), "written by the host only"),
        (replace(touched, reads=()), "read by the CPU backend only"),
        (replace(touched, needed=((480, 484),)), "read by the host only"),
    ):
        changed_run = replace(run, touched=(other,))
        copy = replace(chosen, runs=(changed_run,))
        found = list(cpu_problems(copy, program, [changed_run]))
        # A write that changes nothing is left out by compilers, and so it is here.
        if text != "written by the host only":
            assert any(text in problem for problem in found), text
