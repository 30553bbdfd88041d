"""Contents that are links: refused, unless they stay below the folder that the user names.

The folder is laid out as caches of model hubs are: `snapshots/REV/NAME` links to `blobs/DIGEST`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tessera
from tessera.diagnostics import TesseraError
from tessera.driver.profile.profile_trace import ProfileOptions
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.frontend.text import plain_files
from tests.helpers.command import tessc

TRACE = """//! tessera.trace 1
//! resident data=model{ending}
//! buffer w bytes=16 role=weight dtype=f32 shape=4
//! buffer y bytes=16 role=output dtype=f32 shape=4
//! memcpy y w bytes=16
"""
VALUES = np.arange(4, dtype=np.float32)


def write_arrays(path: Path, ending: str) -> None:
    if ending == ".npz":
        with path.open("wb") as stream:
            np.savez(stream, w=VALUES)
        return
    header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + VALUES.tobytes())


@pytest.fixture(params=[".npz", ".safetensors"])
def hub(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a trace beside the link to its contents; the current folder is the snapshot."""
    found = tmp_path / "hub"
    (found / "blobs").mkdir(parents=True)
    snapshot = found / "snapshots" / "rev"
    snapshot.mkdir(parents=True)
    write_arrays(found / "blobs" / "0123abcd", request.param)
    (snapshot / f"model{request.param}").symlink_to("../../blobs/0123abcd")
    (snapshot / "t.ptx").write_text(TRACE.format(ending=request.param))
    monkeypatch.chdir(snapshot)
    return found


def link_of(hub: Path) -> Path:
    return next(path for path in (hub / "snapshots" / "rev").iterdir() if path.stem == "model")


def commands(hub: Path, *more: str) -> dict[str, tuple[str, ...]]:
    link = str(link_of(hub))
    return {
        "run": ("run", "t.ptx", *more),
        "run data": ("run", "t.ptx", "--data", link, *more),
        "run plan": ("run", "plan.tsp", "--backend", "cpu", "--requests", "1", *more),
        "run plan data": (
            "run",
            "plan.tsp",
            "--backend",
            "cpu",
            "--requests",
            "1",
            "--data",
            link,
            *more,
        ),
    }


def test_links_are_followed_below_the_folder(hub: Path) -> None:
    assert tessc("plan", "t.ptx", "--gpus", "a100", "--data-root", str(hub)).code == 0
    assert 'contents_digest="' in Path("plan.tsp").read_text()
    for name, command in commands(hub, "--data-root", str(hub), "--outputs", "o.npz").items():
        outcome = tessc(*command)
        assert outcome.code == 0, (name, outcome.err)
        assert np.array_equal(np.load("o.npz")["y"].reshape(-1), VALUES)
        Path("o.npz").unlink()
    for command in (("check", "plan.tsp"), ("analyze", "t.ptx"), ("check", "t.ptx")):
        assert tessc(*command, "--data-root", "../..").code == 0


def test_links_are_refused_without_it(hub: Path) -> None:
    assert tessc("plan", "t.ptx", "--gpus", "a100").code == 0
    for name, command in commands(hub).items():
        outcome = tessc(*command)
        assert (outcome.code, "error[TSR1181]" in outcome.err) == (1, True), name
        assert "`--data-root FOLDER`" in outcome.err


def test_a_blob_that_changed_is_not_the_plans(hub: Path) -> None:
    assert tessc("plan", "t.ptx", "--gpus", "a100", "--data-root", str(hub)).code == 0
    blob = hub / "blobs" / "0123abcd"
    blob.write_bytes(blob.read_bytes()[:-1] + b"\1")
    outcome = tessc("check", "plan.tsp", "--data-root", str(hub))
    assert (outcome.code, "error[TSR5057]" in outcome.err) == (1, True)


def _out(hub: Path, link: Path) -> None:
    shutil.move(hub / "blobs" / "0123abcd", hub.parent / "outside")
    link.symlink_to(hub.parent / "outside")


def _out_by_a_second_link(hub: Path, link: Path) -> None:
    shutil.move(hub / "blobs" / "0123abcd", hub.parent / "outside")
    (hub / "blobs" / "next").symlink_to(hub.parent / "outside")
    link.symlink_to("../../blobs/next")


def _out_by_a_folder(hub: Path, link: Path) -> None:
    shutil.move(hub / "blobs", hub.parent / "away")
    (hub / "blobs").symlink_to(hub.parent / "away")
    link.symlink_to("../../blobs/0123abcd")


def _neighbour(hub: Path, link: Path) -> None:
    """A folder whose name begins as that of the root does."""
    shutil.copytree(hub / "blobs", hub.parent / "hub-other")
    link.symlink_to(hub.parent / "hub-other" / "0123abcd")


def _nowhere(hub: Path, link: Path) -> None:
    link.symlink_to("../../blobs/none")


def _loop(hub: Path, link: Path) -> None:
    link.symlink_to(link.name)


def _to_a_pipe(hub: Path, link: Path) -> None:
    os.mkfifo(hub / "blobs" / "pipe")
    link.symlink_to("../../blobs/pipe")


def _to_a_folder(hub: Path, link: Path) -> None:
    link.symlink_to("../../blobs")


def _to_the_root(hub: Path, link: Path) -> None:
    link.symlink_to("../..")


def _to_a_device(hub: Path, link: Path) -> None:
    link.symlink_to("/dev/zero")


HAZARDS = (
    _out,
    _out_by_a_second_link,
    _out_by_a_folder,
    _neighbour,
    _nowhere,
    _loop,
    _to_a_pipe,
    _to_a_folder,
    _to_the_root,
    _to_a_device,
)


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda one: one.__name__.strip("_"))
def test_links_that_lead_elsewhere(hub: Path, hazard: Callable[[Path, Path], None]) -> None:
    link = link_of(hub)
    link.unlink()
    hazard(hub, link)
    for more in ((), ("--data", link.name)):
        outcome = tessc("run", "t.ptx", "--data-root", str(hub), *more)
        assert outcome.code == 1
        assert "error[TSR1181]" in outcome.err
    assert tessc("analyze", "t.ptx", "--data-root", str(hub)).code == 0  # it needs none


def test_a_link_inside_that_stays_inside(hub: Path) -> None:
    link = link_of(hub)
    (hub / "blobs" / "next").symlink_to("0123abcd")
    link.unlink()
    link.symlink_to("../../blobs/next")
    (hub.parent / "way").symlink_to(hub)
    for root in (hub, hub.parent / "way", "../.."):
        assert tessc("run", "t.ptx", "--data-root", str(root)).code == 0


def test_what_is_changed_in_between_is_not_opened(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders on the way are opened one by one: none may have become a link."""
    shutil.copytree(hub / "blobs", hub.parent / "away")
    where = os.path.realpath

    def swapped(path: str) -> str:
        found = where(path)
        if found.endswith("0123abcd") and not (hub / "blobs").is_symlink():
            shutil.rmtree(hub / "blobs")
            (hub / "blobs").symlink_to(hub.parent / "away")
        return found

    monkeypatch.setattr(plain_files.os.path, "realpath", swapped)
    with pytest.raises(TesseraError, match="TSR1181"):
        plain_files.open_plain(str(link_of(hub)), root=str(hub))


def test_a_root_that_is_no_folder(hub: Path) -> None:
    assert tessc("run", "t.ptx", "--data-root", "none").code == 2
    with pytest.raises(TesseraError, match="TSR118"):
        run_trace("t.ptx", RunOptions(data_root=str(hub / "none")))


def test_the_library(hub: Path) -> None:
    root = str(hub)
    report = tessera.plan("t.ptx", tessera.PlanOptions(gpus="a100", data_root=root))
    assert report.plan.traces[0].contents_digest
    assert tessera.analyze("t.ptx", data_root=root).graph is not None
    assert ProfileOptions(devices="h200", data_root=root).data_root == root
    with tessera.Runtime(report.plan, backend="cpu", data_root=hub) as runtime:
        assert np.array_equal(runtime.submit({}).result()["y"], VALUES)
    with pytest.raises(TesseraError, match="TSR1181"):
        tessera.Runtime(report.plan, backend="cpu")
