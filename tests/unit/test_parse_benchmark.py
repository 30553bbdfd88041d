"""`benchmarks/reading/parse.py` measures both sides in the run whose result it writes, in turns."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.reading import parse

PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n"


def test_actions_take_turns_and_the_first_call_of_each_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def timed(action: Callable[[], object]) -> parse.Time:
        action()
        return parse.Time(wall=float(len(calls)), cpu=10.0 * len(calls))

    monkeypatch.setattr(parse, "timed", timed)
    found = parse.in_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4
    assert found["a"] == {
        "wall_s": 5.0,
        "wall_min_s": 3.0,
        "wall_max_s": 7.0,
        "cpu_s": 50.0,
        "first_cpu_s": 10.0,
    }


def test_times_of_an_older_result_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.ptx").write_text(PTX)
    entry = {"file": "k.ptx", "producer": "hand", "arch": "sm_80", "ptxas_options": []}
    old = {"wall_s": 1e6, "wall_min_s": 1e6, "wall_max_s": 1e6, "cpu_s": 1e6}
    result = tmp_path / "parse.json"
    row = {"file": "k.ptx", "bytes": len(PTX), "ptxas": old}
    result.write_text(json.dumps({"files": [row]}))
    commands: list[list[str]] = []
    monkeypatch.setattr(parse, "extracted", lambda: tmp_path)
    monkeypatch.setattr(parse, "manifest", lambda folder: [entry])
    monkeypatch.setattr(parse, "machine", dict)
    monkeypatch.setattr(parse, "find_ptxas", lambda: "ptxas")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    monkeypatch.setattr(parse, "timed", lambda action: (action(), parse.Time(1.0, 1.0))[1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    assert parse.main(["--quick", "--repeats", "2", "-o", str(result)]) == 0
    assert len(commands) == 3
    (row,) = json.loads(result.read_text())["files"]
    assert row["ptxas"]["cpu_s"] == 1.0  # type: ignore[index]
