"""What ptxas says about many statements at once is charged to the right ones.

In: answers of a made-up ptxas, which stops at a syntax error, complains about lines of its own code
and complains about some statements only when nothing else is wrong. Out: nothing.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.reading import oracle

KINDS = ("good", "bad", "syntax", "inner")


class FakeOracle(oracle.Oracle):
    def _run(self, text: str, target: str) -> tuple[int, str]:
        said = []
        for number, line in enumerate(text.splitlines(), 1):
            if "bad" in line:
                said.append(f"ptxas input.ptx, line {number}; error   : Illegal modifier")
            if "inner" in line:
                said.append("ptxas <builtin>, line 5; error   : Unknown symbol")
            if "syntax" in line:
                said.append(f"ptxas input.ptx, line {number}; fatal   : Parsing error near ';'")
                said.append("ptxas <builtin>, line 8; error   : Illegal modifier")
                break
        return 255 if said else 0, "\n".join(said)


@pytest.mark.parametrize("seed", range(20))
def test_each_statement_has_its_own_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(oracle, "ptxas_version", lambda executable: "13.4.92")
    rng = random.Random(seed)
    statements = [f"{rng.choice(KINDS)} %r{number};" for number in range(rng.randrange(1, 60))]
    answers = FakeOracle("ptxas", tmp_path).ask(statements, "sm_90", "8.0")
    assert answers is not None
    taken = [text for text, said in answers.items() if said is None]
    assert taken == [text for text in statements if text.startswith("good")]
    assert FakeOracle("", tmp_path).ask(statements, "sm_90", "8.0") == answers
