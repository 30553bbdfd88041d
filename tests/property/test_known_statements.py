"""The table of known statements says what the verifier says.

If this fails, a rule of statements has changed: run `python -m benchmarks.reading.known`.
"""

from __future__ import annotations

import random

import pytest

from benchmarks.reading.known import GROUNDS, instruction_of
from tessera.ir.opcodes.targets import NEWEST_VERSION
from tessera.ir.verify_ptx.accept_outline import accepts_text
from tessera.ir.verify_ptx.known_statements import KnownStatements, read_table, split_statement
from tests.helpers.share import least


def test_verdicts_are_those_of_the_verifier() -> None:
    chance = random.Random(7)
    places = {
        (trial.ground.version, target): (trial, KnownStatements(trial.ground.version, target))
        for target, trials in GROUNDS.items()
        for trial in trials
    }
    asked = taken = 0
    for opcode, groups in read_table()[1].items():
        for operands in {o for group in groups.split() for o in group.split(":", 1)[1].split(";")}:
            statement = f"{opcode} {operands}"
            instruction = instruction_of(statement)
            assert instruction is not None, statement
            for trial, table in chance.sample(list(places.values()), least(2, 1)):
                is_known = list(table.known([statement])) == [statement]
                assert is_known == accepts_text(trial, instruction), (statement, trial.ground)
                taken += is_known
                asked += 1
    assert asked > least(8_000, 4_000)
    assert 0.2 * asked < taken < 0.9 * asked


@pytest.mark.parametrize(
    ("text", "opcode", "operands"),
    [
        ("add.s32 \t%0b32, %0b32, 0", "add.s32", "%0b32,%0b32,0"),
        ("@%0pred bra %0$3a$", "bra", "%0$3a$"),
        ("@!%0pred  bra.uni\n%0$3a$", "bra.uni", "%0$3a$"),
        ("@%0b32 ret", "@%0b32", "ret"),
        ("ld.global.b32 %0b32, [%0b64 + 0]", "ld.global.b32", "%0b32,[%0b64]"),
        ("st.b32 [%0b64+-0], %0b32", "st.b32", "[%0b64],%0b32"),
        ("ret", "ret", ""),
    ],
)
def test_texts_that_are_one_statement(text: str, opcode: str, operands: str) -> None:
    assert split_statement(text) == (opcode, operands)


def test_nothing_is_known_on_targets_that_a_version_lacks() -> None:
    statement = "add.s32 %0b32,%0b32,%0b32"
    assert list(KnownStatements((9, 4), "sm_100a").known([statement])) == [statement]
    assert list(KnownStatements((8, 0), "sm_100a").known([statement])) == []
    assert list(KnownStatements(NEWEST_VERSION, "sm_1000").known([statement])) == []
