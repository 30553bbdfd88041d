"""Files of every group of device functions, from sm_35 to sm_120a, are accepted."""

from __future__ import annotations

import json
import tarfile

import pytest

from benchmarks.reading.accept import FUNCTIONS, look, read_texts

EVERY = 29


@pytest.fixture(scope="module")
def files() -> list[tuple[str, bytes]]:
    return list(read_texts(FUNCTIONS))


def test_a_spread_of_the_archive_is_accepted(files: list[tuple[str, bytes]]) -> None:
    refused = [reason for name, content in files[::EVERY] if (reason := look(name, content)[0])]
    assert refused == []


def test_every_producer_and_old_targets_are_in_the_archive(files: list[tuple[str, bytes]]) -> None:
    with tarfile.open(FUNCTIONS) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        entries = json.load(manifest)["files"]
    assert [entry["file"] for entry in entries] == [name for name, _ in files]
    assert len({entry["producer"] for entry in entries}) == 8
    assert {"sm_35", "sm_50", "sm_70", "sm_90a", "sm_100a"} <= {entry["arch"] for entry in entries}
