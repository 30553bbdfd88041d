"""The CPU backend against recorded results of an H200, to the bit.

What differs must stand in `differences.json` with a reason, and what stands there must differ.
Approximate instructions must also keep within what the PTX ISA promises, on both machines.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.bounds import decode, error_in_bounds, find_bound
from tests.kernels.case import Case
from tests.kernels.cases import CASES
from tests.kernels.cpu import case_result
from tests.kernels.probes import Probe, load_probes
from tests.kernels.recorded import (
    Difference,
    case_differences,
    digest,
    listed,
    probe_differences,
    recording,
    report,
)

PROBES = load_probes()
APPROXIMATE = [probe for probe in PROBES if probe.name.startswith("approx_")]
HINT = "run `python -m tests.kernels.recorded` and review differences.json"


def check_listed(prefix: str, found: list[Difference]) -> None:
    """Every difference is listed with its size, and nothing more is."""
    known = {key: row for key, row in listed().items() if key.startswith(prefix)}
    unknown = [d for d in found if d.key not in known or d.differs > known[d.key]["differs"]]
    assert not unknown, "\n".join(
        f"{d.key}: {d.differs} of {d.elements}, {d.first}" for d in unknown
    )
    stale = known.keys() - {d.key for d in found}
    assert not stale, f"equal now: {sorted(stale)}; {HINT}"


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_probe_equals_the_gpu(probe: Probe) -> None:
    check_listed(f"{probe.name}: ", list(probe_differences(probe)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_equals_the_gpu(case: Case) -> None:
    check_listed(f"{case.name}/", list(case_differences(case)))


@pytest.mark.parametrize("probe", APPROXIMATE, ids=lambda probe: probe.name)
@pytest.mark.parametrize("machine", ["cpu", "h200"])
def test_approximations_keep_their_bounds(probe: Probe, machine: str) -> None:
    run = probe.case.make()
    out = recording("probes")[probe.name]
    if machine == "cpu":
        out = case_result(probe.case).buffers["out"]
    for result in probe.results:
        bound = find_bound(result.text)
        assert bound is not None, result.text
        inputs = [decode(run.buffers[f"in{i}"], result.kind) for i in range(len(probe.inputs))]
        got = decode(result.view(out), result.kind)
        error, at = error_in_bounds(result.text, bound, inputs, got, result.kind)
        values = [float(values[at]) for values in inputs]
        assert error <= 1, f"{result.text} of {values}: {got[at]!r}, {error:.3} times the bound"


@pytest.mark.parametrize("probe", APPROXIMATE, ids=lambda probe: probe.name)
def test_approximations_agree_on_nan_and_infinity(probe: Probe) -> None:
    ours = case_result(probe.case).buffers["out"]
    theirs = recording("probes")[probe.name]
    for result in probe.results:
        got, want = (decode(result.view(out), result.kind) for out in (ours, theirs))
        assert np.array_equal(np.isnan(got), np.isnan(want)), result.text
        assert np.array_equal(got[np.isinf(want)], want[np.isinf(want)]), result.text
        assert np.isinf(got).sum() == np.isinf(want).sum(), result.text


def test_the_recording_was_made_with_these_inputs() -> None:
    items = report()["items"]
    for case in (*CASES, *(probe.case for probe in PROBES)):
        assert items[case.name]["inputs"] == digest(case.make()), case.name
        assert items[case.name]["status"] == "ok", case.name


def test_the_gpu_agrees_with_the_references() -> None:
    differing = {name: row["differs"] for name, row in report()["items"].items() if row["differs"]}
    assert not differing


def test_a_wrong_bit_is_found() -> None:
    probe = next(probe for probe in PROBES if probe.name == "int_u32")
    theirs = recording("probes")[probe.name]
    changed = theirs.copy()
    changed[probe.results[0].offset] ^= 1
    views = probe.results[0].view(theirs), probe.results[0].view(changed)
    assert np.count_nonzero(views[0] != views[1]) == 1
