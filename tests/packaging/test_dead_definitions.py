"""The tool of `make check` that finds definitions which nothing uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.dead_definitions import dead_definitions

ROOT = Path(__file__).parents[2]


def test_an_unused_definition_is_found(tmp_path: Path) -> None:
    (tmp_path / "tessera").mkdir()
    (tmp_path / "grammars").mkdir()
    (tmp_path / "grammars" / "t.lark").write_text("rule: WORD\n", "utf-8")
    source = tmp_path / "tessera" / "a.py"
    source.write_text(
        "def used(): ...\ndef unused(): ...\ndef rule(): ...\n"
        "class Unused:\n    def __len__(self): ...\n    async def never(self): ...\nused()\n",
        "utf-8",
    )
    assert dead_definitions(tmp_path) == dict.fromkeys(["unused", "Unused", "never"], source)


def test_a_decorator_that_only_changes_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "tessera").mkdir()
    source = tmp_path / "tessera" / "a.py"
    source.write_text(
        "@dataclass(frozen=True)\nclass Record:\n    @property\n    def whole(self): ...\n"
        "@command\ndef typed(): ...\n",
        "utf-8",
    )
    assert dead_definitions(tmp_path) == dict.fromkeys(["Record", "whole"], source)


def test_make_check_runs_it_and_it_passes() -> None:
    assert "tools/dead_definitions.py" in (ROOT / "Makefile").read_text("utf-8")
    command = [sys.executable, str(ROOT / "tools" / "dead_definitions.py")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "")
