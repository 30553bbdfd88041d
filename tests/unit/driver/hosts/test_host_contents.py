"""Weights that a host has itself: the driver's bytes, or one error that names host and path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.backend.hosts.messages import OwnWeight
from tessera.diagnostics import TesseraError
from tessera.driver.hosts.host_contents import digest_of, own_contents
from tessera.frontend.trace.read_trace import parse_trace
from tests.helpers.checkpoints import sharded

W = np.arange(8, dtype=np.float32)


def flat(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8).reshape(-1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.savez(tmp_path / "model.npz", w=W, v=W + 1)
    return str(tmp_path / "model.npz")


def test_the_bytes_of_the_driver(path: str) -> None:
    got = own_contents("right", path, [OwnWeight("w", digest_of(flat(W)))])
    assert list(got) == ["w"]
    assert np.array_equal(got["w"], flat(W))
    part = flat(W)[8:20]
    got = own_contents("right", path, [OwnWeight("w", digest_of(part), 8, 20)])
    assert np.array_equal(got["w"], part)


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
        own_contents("right", there, [OwnWeight(array, digest_of(flat(W)))])
    (said,) = caught.value.diagnostics
    assert said.code == "TSR5071"
    assert f"`{there}` of host `right`" in str(said.headline)
    assert what in str(said.headline)
    assert caught.value.exit_code == 4


TRACE = """//! tessera.trace 1
//! buffer a.w bytes=32 role=weight dtype=f32 shape=8
//! buffer a.v bytes=32 role=weight dtype=f32 shape=8
//! buffer out bytes=32 role=output dtype=f32 shape=8
//! memcpy out a.w bytes=32
"""


def test_a_folder_of_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", w=W, v=W)
    np.savez(tmp_path / "two.npz", v=W + 1)
    wanted = [OwnWeight("w", digest_of(flat(W))), OwnWeight("v", digest_of(flat(W + 1)))]
    got = own_contents("right", str(tmp_path), wanted)
    assert np.array_equal(got["v"], flat(W + 1)), "the one with the driver's bytes"
    with pytest.raises(TesseraError, match="have no array `x`"):
        own_contents("right", str(tmp_path), [OwnWeight("x", "")])


def test_a_folder_that_is_a_checkpoint(tmp_path: Path) -> None:
    sharded(
        tmp_path,
        ("model.a.w", "F32", (8,), W.tobytes()),
        ("model.a.v", "F32", (8,), (W + 1).tobytes()),
    )
    program = parse_trace(TRACE, "trace.ptx")
    wanted = [OwnWeight("a.w", digest_of(flat(W))), OwnWeight("a.v", digest_of(flat(W + 1)))]
    got = own_contents("right", str(tmp_path), wanted, [program])
    assert np.array_equal(got["a.v"], flat(W + 1))
    with pytest.raises(TesseraError, match="have other bytes in"):
        own_contents("right", str(tmp_path), [OwnWeight("a.v", digest_of(flat(W)))], [program])
