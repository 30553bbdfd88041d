"""Weights that a host has itself: the driver's bytes, or one error that names host and path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.hosts.host_contents import digest_of, own_contents

W = np.arange(8, dtype=np.float32)


def flat(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8).reshape(-1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.savez(tmp_path / "model.npz", w=W, v=W + 1)
    return str(tmp_path / "model.npz")


def test_the_bytes_of_the_driver(path: str) -> None:
    got = own_contents("right", path, [("w", digest_of(flat(W)))])
    assert list(got) == ["w"]
    assert np.array_equal(got["w"], flat(W))


@pytest.mark.parametrize(
    ("name", "array", "what"),
    [
        ("w", "v", "have other bytes in `v` than the driver's"),
        ("w", "x", "have no array `x`"),
        ("", "w", "do not exist there"),
    ],
)
def test_other_contents_are_refused(path: str, name: str, array: str, what: str) -> None:
    there = path if name else path.replace("model", "other")
    with pytest.raises(TesseraError) as caught:
        own_contents("right", there, [(array, digest_of(flat(W)))])
    (said,) = caught.value.diagnostics
    assert said.code == "TSR5071"
    assert f"`{there}` of host `right`" in said.headline
    assert what in said.headline
    assert caught.value.exit_code == 4
