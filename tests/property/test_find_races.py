"""Works that race are told from works of which the regions are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gpu.check_generated import analysed
from tests.gpu.find_races import main, races, row_of
from tests.helpers.share import share

SAID = {
    # What an H200 said of these.
    "grid 1491": "0: poison 0xff: output `out` byte 60 differs",
    "grid 582": "0: poison 0xff: output `out` byte 24 differs",
    "grid 1287": "0: poison 0xff: output `out` byte 996 differs",
    "kernel 891": "0: poison 0xff: output `wide` byte 448 differs",
}


def given(name: str) -> dict:
    kind, seed = name.split()
    row = {"name": name, "kind": kind, "seed": int(seed)}
    return row | json.loads(json.dumps(analysed(row)))


@pytest.mark.parametrize("name", share([*SAID]))
def test_a_work_that_races(name: str) -> None:
    assert races(row_of(given(name), [SAID[name]]))


@pytest.mark.parametrize("name", ["memory 5", "tensor 2", "cluster 4"])
def test_a_work_that_does_not_race_stays_wrong(name: str) -> None:
    work = given(name)
    written = next(iter(work["work"]["steps"][0]["must"].items()))
    buffer, ((byte, _), *_) = written
    said = f"0: poison 0xff: output `{work['work']['buffers'][int(buffer)][0]}` byte {byte} differs"
    row = row_of(work, [said])
    assert row["regions hold"]
    assert not races(row)


def test_a_race_does_not_excuse_wrong_regions() -> None:
    work = given("grid 1491")
    for regions in work["work"]["steps"]:
        regions["read"] = {}
    assert not races(row_of(work, [SAID["grid 1491"]]))


def test_the_file_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "generated_gpu.json"
    found.write_text(json.dumps({"wrong": {"grid 582": [SAID["grid 582"]]}}))
    monkeypatch.setattr("tests.gpu.find_races.works_in", lambda _: [given("grid 582")])
    monkeypatch.setattr("sys.argv", ["find_races", str(tmp_path), str(found)])
    main()
    kept = json.loads(found.read_text())
    assert kept["wrong"] == {}
    assert list(kept["races"]) == ["grid 582"]
