"""Every sentence of the reports, over the whole range of their figures: none contradicts another.

`said` makes the texts; `contradictions` compares their sentences with their tables.
"""

from __future__ import annotations

import re

import pytest

from tessera.driver.diff_plans import FigurePair
from tessera.planning.promise.doubt import Standing
from tessera.report.diff import pair_row
from tessera.report.kernel_names import MOST, short_name, short_names
from tests.unit.report.contradictions import CHECKS
from tests.unit.report.said import BARS, doubt_of, every_text

Texts = dict[tuple[str, str], str]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    made = every_text(tmp_path_factory.mktemp("said"))
    return {(command, name): text for command, name, text in made}


def test_no_sentence_contradicts_the_tables(texts: Texts) -> None:
    wrong = [
        f"{name}: {said}\n{text}"
        for (command, name), text in texts.items()
        for said in CHECKS[command](text)
    ]
    assert not wrong, "\n\n".join(wrong[:3])
    assert len(texts) > 350


def test_an_answer_is_the_first_thing_said(texts: Texts) -> None:
    """It begins with what to do, before any table."""
    verbs = "put|run|split|give|use|rent|buy|take|the plan keeps up|all requests come"
    for (command, name), text in texts.items():
        lines = [line for line in text.splitlines() if line.startswith(("plan: ", "answer: "))]
        if "the plans are equal" in text:
            continue
        assert len(lines) == 1, name
        assert text.split(lines[0])[0].count("\n") <= 2, name
        if command in ("plan", "fleet"):
            assert re.match(rf"\w+: ({verbs})\b", lines[0]), lines[0]


# A command, the text, what to find in it and what to put there instead, what is found then.
PLANTED = [
    ("plan", "plan search", r"61164\.9 requests/s, lat", "61165.9 requests/s, lat", "rate of"),
    ("plan", "plan search", r"latency 35\.9 us", "latency 25.9 us", "latency of the plan"),
    ("plan", "plan search", r"64\.9 us in the median", "54.9 us in the median", "loaded of"),
    ("plan", "plan search", r"\$0\.0117 per", "$0.0107 per", "cost of the plan"),
    ("plan", "plan search", r"strategy `dp`", "strategy `kernel`", "name of the plan"),
    ("plan", "plan search", r"24022\.6 to (\S+) req", r"34022.6 to \1 req", "bar of the plan"),
    ("plan", "plan search", r"put a copy on each GPU", "split every request over", "split"),
    ("plan", "plan kernel", r"split every request over", "run every request on", "split"),
    ("plan", "plan kernel", r", as asked for\n", "\n", "asked for"),
    ("plan", "plan search", r"l40s-0 50\.4%", "l40s-0 60.4%", "shares"),
    ("plan", "plan single", r"leave a100-0 idle", "leave l40s-0 idle", "idle"),
    ("plan", "plan single", r"on l40s-0, and", "on a100-0, and", "device"),
    ("plan", "plan single", r"  `dp` has .*\n", "", "better row dp"),
    ("plan", "plan single", r"\(\+98\.6%\)", "(+88.6%)", "change of better row"),
    ("plan", "plan single", r"`dp` has", "`layers` has", "figure of better row"),
    ("plan", "plan search", r"l40s 1\.02 times", "l40s 1.22 times", "how many times"),
    ("plan", "plan search", r"(bottleneck: .*), 16\.3", r"\1, 33.3", "bottleneck"),
    ("plan", "plan kernel", r"-22\.1%, ", "+22.1%, ", "figure of the split"),
    (
        "plan",
        "plan kernel",
        r"the error bars do not tell which",
        "`dp`",
        "sentence about the split",
    ),
    ("plan", "plan kernel", r"`kernel` is taken", "`dp` is taken", "what is taken"),
    (
        "plan",
        "split (0.1, 0.4, 0.4), asked for: False",
        r"\n  `kernel` is better",
        "\n  the error bars do not tell which is better",
        "sentence about the split",
    ),
    (
        "plan",
        "split (-0.4, 0.1, 0.4), asked for: False",
        r"the error bars do not tell whether splitting a request pays",
        "splitting a request does not pay",
        "whether splitting pays",
    ),
    (
        "plan",
        "other GPUs (0.1, 0.1, 0.4), search",
        r"better than this plan",
        "this plan is better",
        "standing of",
    ),
    (
        "plan",
        "other GPUs (-0.4, 0.1, 0.4), latency",
        r"latency -9\.1%",
        "latency +9.1%",
        "figure of 2x",
    ),
    ("fleet", "fleet", r"answer: (\w+) (only )?\d+", r"answer: \1 \g<2>9", "GPUs of the answer"),
    ("fleet", "fleet", r"\n\n\d+ (\w+)", r"\n\n9 \1", "GPUs of the totals"),
    ("fleet", "data parallel", r"do not split", "split", "do not split"),
    ("fleet", "phase", r"read prompts and make answers", "split", "roles"),
    ("fleet", "phase, demand None", r"\n  requests/s \+", "\n  requests/s -", "gain of"),
    ("fleet", "phase, demand 20.0", r"\n  cost -", "\n  requests/s -", "figure of the answer"),
    ("fleet", "(0.02, 0.03", r"also with.*: the", "within the error of the times: the", "error"),
    ("fleet", "fleet", r"(it serves \S+ \S+, )", r"\g<1>1", "bar of the rate"),
    ("fleet", "demand 20.0", r", so it may serve less than the demand", "", "whether the demand"),
    ("fleet", "demand None, (0.1", r"better than the answer", "do not tell", "standing of"),
    ("diff", "diff search kernel", r"take the first", "take the second", "which plan to take"),
    ("diff", "diff cost 1.3", r"take the first", "take either", "which plan to take"),
    ("diff", "diff search kernel", r"rate (\d+)", r"rate 1\1", "figures of the plans"),
    ("simulate", "poisson:1000/s", r"the plan keeps up", "use more GPUs", "keeps up"),
    ("simulate", "poisson:200000/s", r"use more GPUs.*: req", "the plan keeps up: req", "keeps up"),
    ("simulate", "poisson:1000/s", r"(\n  served +)", r"\g<1>9", "more served"),
    ("simulate", "claimed 0.5", r"50\.00% less than", "as", "what the plan says"),
]


@pytest.mark.parametrize(("command", "name", "pattern", "instead", "wanted"), PLANTED)
def test_a_planted_contradiction_is_found(
    texts: Texts, command: str, name: str, pattern: str, instead: str, wanted: str
) -> None:
    own = (t for (c, n), t in texts.items() if c == command and (n == name or name in n[6:]))
    text = next(text for text in own if re.search(pattern, text))
    planted = re.sub(pattern, instead, text, count=1)
    assert any(wanted in said for said in CHECKS[command](planted))


@pytest.mark.parametrize(("low", "gain", "high"), BARS)
def test_no_ranking_against_the_figure(low: float, gain: float, high: float) -> None:
    standing = doubt_of(low, gain, high).standing
    assert (standing is Standing.AHEAD) == (low > 0 and gain > 0)
    assert (standing is Standing.BEHIND) == (high < 0 and gain < 0)


@pytest.mark.parametrize(
    ("unit", "before", "after", "change"),
    [
        ("share", 1e-6, 3.5e-6, ""),  # both are printed as 0.00%
        ("share", 0.0, 0.427, "+42.70 points"),
        ("share", 0.05, 0.02, "-3.00 points"),
        ("ns", 100.0, 150.0, "+50.0%"),
        ("ns", 100.0, None, ""),
        ("bytes", 0.0, 8.0, ""),
    ],
)
def test_a_change(unit: str, before: float, after: float | None, change: str) -> None:
    row = pair_row(FigurePair(name="gap", unit=unit, before=before, after=after))
    assert row[3] == change


NAMES = {
    "m0._ZN6cudapy8__main__3addB2v1B8cw51cXTLE5ArrayIfLi1E1C7mutable7alignedE": "m0.__main__::add<",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorE": "at::native::vectorized",
    "m3._Z14gemm_pipelinedP6__halfPKS_S2_iii": "m3.gemm_pipelined",
    "_Z3foo3Bar": "foo",
    "_ZN99short": "_ZN99short",
    "aten::mm.out": "aten::mm.out",
    "decode: m0.linear": "decode: m0.linear",
}


@pytest.mark.parametrize(("name", "start"), NAMES.items())
def test_a_mangled_name_is_read(name: str, start: str) -> None:
    assert short_name(name).startswith(start)
    assert len(short_name(name)) <= MOST


def test_short_names_differ() -> None:
    kernels = [f"_ZN3lib4gemmILi{tile}EEvPfi" for tile in (32, 64, 128)]
    fused = [f"m{n}.triton_{'mul_add_' * 20}{n}" for n in range(20)]
    alike = ["a" * 40 + letter + "b" * 40 for letter in "xyz"]
    made = short_names([*kernels, *fused, *alike])
    assert len(set(made.values())) == len(made)
    assert all(len(made[name]) <= MOST for name in [*kernels, *fused])
