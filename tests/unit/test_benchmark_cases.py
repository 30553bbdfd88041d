"""How cases of benchmarks are run: what has a row is not done again; each row is kept at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cases


def run(monkeypatch: pytest.MonkeyPatch, path: Path, names: list[str], *words: str) -> list[str]:
    """Run cases without processes; which were begun."""
    begun: list[str] = []

    def row(module: str, name: str, *_: object) -> dict[str, Any] | None:
        begun.append(name)
        return {"late": None, "bad": {"failed": "why"}}.get(name, {"us": 1.0})

    monkeypatch.setattr(cases, "_row", row)
    options = cases.parser_of("doc", seconds=100.0, jobs=2).parse_args(
        ["-o", str(path), "--work", str(path.parent / "work"), *words]
    )
    cases.run_cases("module", names, options, dict, sums=lambda rows: {"count": len(rows)})
    return sorted(begun)


def test_a_case_with_a_row_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.json"
    assert run(monkeypatch, path, ["good", "bad", "late"]) == ["bad", "good", "late"]
    document = json.loads(path.read_text())
    assert document["count"] == 2
    assert document["rows"] == {"good": {"us": 1.0}, "bad": {"failed": "why"}}
    assert run(monkeypatch, path, ["good", "bad", "late"]) == ["late"]
    assert run(monkeypatch, path, ["good", "bad", "late"], "--again") == ["bad", "late"]
    assert run(monkeypatch, path, ["good", "bad", "late"], "--only", "new") == ["new"]


def test_one_case_prints_its_row_or_why_it_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--work", str(tmp_path), "--one", "name"]
    options = cases.parser_of("doc", seconds=1.0, jobs=1).parse_args(words)
    cases.run_cases("module", (), options, lambda name: {"is": name})
    assert json.loads(capsys.readouterr().out) == {"is": "name"}

    def fails(name: str) -> dict[str, Any]:
        raise ValueError("no such case")

    cases.run_cases("module", (), options, fails)
    assert "ValueError: no such case" in json.loads(capsys.readouterr().out)["failed"]
