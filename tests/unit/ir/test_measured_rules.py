"""Recorded verdicts of ptxas on single statements: none that it takes is refused, most others are.

In: `tests/data/opcodes/verdicts.txt`. Out: nothing; the floor is what the rules reach today.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.reading.statements import features, in_kernel, module_head, name_of
from tessera.diagnostics import Source, TesseraError, summarise
from tessera.frontend.ptx.read_ptx import load_module
from tessera.ir.opcodes.families.measured import RULES
from tessera.ir.opcodes.rules import operand_class, read_rule, rules_for, targets_of
from tessera.ir.ptx import syntax as ptx

RECORDED = Path(__file__).parents[2] / "data" / "opcodes" / "verdicts.txt"
FLOOR = 0.94


def is_refused(statement: str, target: str, version: str) -> bool:
    """Whether Tessera refuses the statement on its own line."""
    lines = [*module_head(target, version), ".entry kernel(.param .b64 pointer) {"]
    text = "\n".join([*lines, in_kernel(statement), "}"]) + "\n"
    try:
        load_module(Source("statement", text))
    except TesseraError as failure:
        return summarise(failure.diagnostics[0]).startswith("statement:5:")
    return False


def test_verdicts_are_those_of_ptxas() -> None:
    rows = [line.split(" ", 3) for line in RECORDED.read_text().splitlines()[1:]]
    taken = [row for row in rows if row[2] == "taken"]
    refused = [row for row in rows if row[2] == "refused"]
    assert len(taken) > 100
    assert [row for row in taken if is_refused(row[3], row[0], row[1])] == []
    share = sum(is_refused(row[3], row[0], row[1]) for row in refused) / len(refused)
    assert share >= FLOOR


@pytest.mark.parametrize(
    ("line", "target", "version", "refused"),
    [
        ("tcgen05.wait::ld.sync.aligned;", "sm_120a", "9.4", True),
        ("tcgen05.wait::ld.sync.aligned;", "sm_103f", "8.8", False),
        ("wgmma.fence.sync.aligned;", "sm_100a", "9.4", True),
        ("wgmma.fence.sync.aligned;", "sm_90a", "8.0", False),
        ("shfl.up.b32 %r1, %r2, %r3, %r4;", "sm_70", "6.4", True),
        ("shfl.up.b32 %r1, %r2, %r3, %r4;", "sm_70", "6.3", False),
        ("fabric.submit;", "sm_100a", "9.4", False),
        ("fabric.submit;", "sm_90", "9.4", True),
        ("fence.proxy.fabric::generic.alias.acquire.sys;", "sm_120a", "9.4", False),
        ("prefetch.global.L1::32B.valid_addr [%rd1];", "sm_90", "9.4", False),
    ],
)
def test_targets_and_versions(line: str, target: str, version: str, *, refused: bool) -> None:
    assert is_refused(line, target, version) is refused


def test_every_rule_can_be_read_and_names_targets() -> None:
    lines = re.sub(r"\n +", " ", RULES).strip().splitlines()
    assert len(lines) == len(set(lines))
    for line in lines:
        rule = read_rule(line)
        for name in line.partition("|")[0].split():
            assert rule in rules_for(tuple(name.split(".")))
        assert all(place.targets for place in rule.places), line
        assert all(targets_of(word) for word in re.findall(r"sm_\w+\+?", line))


@pytest.mark.parametrize(
    ("values", "taken", "refused"),
    [
        ("0:24..256/8", (24, 32, 256), (16, 25, 28, 264)),
        ("0:4,8,16", (4, 8, 16, 2**40), (0, 5, 32)),
        ("0:1..", (1, 2**31), (0, -1)),
    ],
)
def test_constants_are_compared_by_value(
    values: str, taken: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    limit = read_rule(f"bar | | {values}").values
    assert limit is not None
    for value in (*taken, *refused):
        assert limit.holds((ptx.Integer(str(value), value),)) is (value in taken), value
    assert limit.holds((ptx.Name("%r1"),))
    assert limit.holds(())


def test_a_constant_out_of_range_is_found_behind_one_in_range() -> None:
    lines = [*module_head("sm_90", "8.0"), ".entry kernel() {", "bar.sync 1;", "bar.sync 16;", "}"]
    with pytest.raises(TesseraError) as refusal:
        load_module(Source("statement", "\n".join(lines)))
    assert summarise(refusal.value.diagnostics[0]).startswith("statement:6:10: error[TSR1028]")


def test_names_and_features() -> None:
    assert operand_class("f16x2") == operand_class("=global") == operand_class("{b32,_}") == "?"
    assert operand_class("!pred") == "pred"
    assert operand_class("{u32,s32}") == "{b32*2}"
    assert name_of("shfl.bfly.sync.b32 %r1, %r2, 1, 31, -1;") == ("shfl", "sync")
    assert features("mov.sat.sat.u32 %r1, %clusterid.x;") == {
        *("sat", "sat*2", "u32", "#2", "0=b32", "1=%", "1=%clusterid")
    }
