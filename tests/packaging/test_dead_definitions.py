"""The tool of `make check` that finds definitions which nothing uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import dead_definitions as tool
from tools.dead_definitions import dead_definitions


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


def test_the_exit_status_is_1_if_anything_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tessera").mkdir()
    (tmp_path / "tessera" / "a.py").write_text("def unused(): ...\ndef kept(): ...\n", "utf-8")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "USED_ELSEWHERE", {"kept": "a test"})
    assert tool.main() == 1
    assert capsys.readouterr().out == "tessera/a.py: nothing uses `unused`\n"
    monkeypatch.setattr(tool, "USED_ELSEWHERE", {"kept": "a test", "unused": "a test"})
    assert tool.main() == 0
    monkeypatch.setattr(tool, "USED_ELSEWHERE", {"kept": "a", "unused": "a", "gone": "a"})
    assert tool.main() == 1
