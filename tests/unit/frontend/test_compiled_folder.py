"""What compilers keep between captures: damaged kernels go, whole ones stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tessera.frontend.cache.private_files import clear_cache, kept
from tessera.frontend.capture import compiled_folder as place


def kernel(folder: Path, name: str, text: str = "code") -> Path:
    made = folder / "triton" / name
    made.mkdir(parents=True)
    (made / "k.ptx").write_text(text)
    (made / "__grp__k.json").write_text("{}")
    return made


def test_a_kernel_that_has_changed_is_removed_and_others_stay(tmp_path: Path) -> None:
    whole, damaged = kernel(tmp_path, "A"), kernel(tmp_path, "B")
    place.note_kernels(tmp_path)
    late = kernel(tmp_path, "C")
    (damaged / "k.ptx").write_text("cod")
    place.drop_damaged(tmp_path)
    assert [path.exists() for path in (whole, damaged, late)] == [True, False, True]
    place.note_kernels(tmp_path)
    assert sorted(place._noted(tmp_path) or {}) == ["triton/A", "triton/C"]


def test_what_nobody_has_written_to_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = kernel(tmp_path, "A")
    place.note_kernels(tmp_path)
    before = (tmp_path / "noted.json").read_bytes()
    read: list[Path] = []
    digest = place._digest
    monkeypatch.setattr(place, "_digest", lambda item: (read.append(item), digest(item))[1])
    place.drop_damaged(tmp_path)
    place.note_kernels(tmp_path)
    assert read == []
    assert (tmp_path / "noted.json").read_bytes() == before
    (old / "k.ptx").write_text("code")  # the same again
    place.drop_damaged(tmp_path)
    assert read == [old]
    assert old.exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b"[1]", b"\xff"])
def test_tables_that_are_cut_are_removed(tmp_path: Path, damage: bytes) -> None:
    made = kernel(tmp_path, "A")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "times").write_bytes(damage)
    (tmp_path / "cache" / "whole").write_text('{"cache": {}}')
    place.drop_damaged(tmp_path)
    assert made.exists()  # of an interrupted capture: nobody has noted anything
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["whole"]


@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b"[1]", b"\xff", b'{"triton/A": "12"}'])
def test_where_the_notes_are_damaged_nothing_is_trusted(tmp_path: Path, damage: bytes) -> None:
    made = kernel(tmp_path, "A")
    files = compiled_graph(tmp_path)
    place.note_kernels(tmp_path)
    (tmp_path / "noted.json").write_bytes(damage)
    place.drop_damaged(tmp_path)
    assert [path.exists() for path in (made, *files)] == [False] * 4
    place.note_kernels(tmp_path)
    assert place._noted(tmp_path) == {}


def test_notes_that_were_changed_are_damaged(tmp_path: Path) -> None:
    made = kernel(tmp_path, "A")
    place.note_kernels(tmp_path)
    text = (tmp_path / "noted.json").read_text()
    (tmp_path / "noted.json").write_text(text.replace("triton/A", "triton/B"))
    place.drop_damaged(tmp_path)
    assert not made.exists()


def test_a_kernel_that_is_being_written_is_not_noted(tmp_path: Path) -> None:
    made = kernel(tmp_path, "A")
    (made / "__grp__k.json").unlink()
    place.note_kernels(tmp_path)
    (made / "k.cubin").write_text("more")
    place.drop_damaged(tmp_path)
    assert made.exists()


def test_the_oldest_kernels_go_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "MAX_COMPILED_BYTES", 30)
    old, new = kernel(tmp_path, "A", "x" * 20), kernel(tmp_path, "B", "x" * 20)
    for file in old.iterdir():
        os.utime(file, (1, 1))
    place.note_kernels(tmp_path)
    assert [path.exists() for path in (old, new)] == [False, True]


def test_what_another_capture_writes_to_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "MAX_COMPILED_BYTES", 1)
    made = kernel(tmp_path, "A")
    (made / "tmp.pid_7_x").mkdir()
    place.note_kernels(tmp_path)
    (made / "k.ptx").write_text("other")
    place.drop_damaged(tmp_path)
    assert made.exists()
    os.utime(made / "tmp.pid_7_x", (1, 1))  # of a process that was killed
    place.drop_damaged(tmp_path)
    assert not made.exists()


def test_the_cache_counts_and_clears_compiled_kernels(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    kernel(folder / "compiled" / "0123", "A")
    assert kept(folder) == {"compiled kernels": (2, 6)}
    assert clear_cache(folder) == (2, "")
    assert kept(folder) == {}


def compiled_graph(folder: Path, text: str = "a graph") -> list[Path]:
    """A compiled graph as torch.compile keeps it: what it is, and its code."""
    files = [
        folder / "fxgraph" / "ab" / "key" / "entry",
        folder / "aotautograd" / "key" / "entry",
        folder / "xy" / "cxy.py",
    ]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return files


@pytest.mark.parametrize("part", ["", "48sm"])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_compiled_graphs_that_have_changed_are_removed(
    tmp_path: Path, part: str, damaged: int
) -> None:
    files = compiled_graph(tmp_path / part)
    place.note_kernels(tmp_path)
    files[damaged].write_text("a grap")
    place.drop_damaged(tmp_path)
    assert [file.exists() for file in files] == [number != damaged for number in range(3)]


def test_what_was_made_again_is_noted_again(tmp_path: Path) -> None:
    file = compiled_graph(tmp_path)[1]
    place.note_kernels(tmp_path)
    file.write_text("another graph")
    later = (tmp_path / "noted.json").stat().st_mtime + 5
    os.utime(file, (later, later))
    place.note_kernels(tmp_path)
    place.drop_damaged(tmp_path)
    assert file.exists()


def test_choices_that_are_no_json_are_removed(tmp_path: Path) -> None:
    for name, text in (("whole", '{"num_warps": 4}'), ("cut", '{"num_w'), ("other", "[]")):
        file = tmp_path / "ab" / f"{name}.best_config"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    place.drop_damaged(tmp_path)
    assert [path.stem for path in (tmp_path / "ab").iterdir()] == ["whole"]
