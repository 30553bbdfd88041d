"""Compilers are told the names that they have for themselves, for the same files alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.cache import private_files
from tessera.frontend.capture import compiler_names
from tessera.frontend.capture.compiler_names import start_naming


class Compilers:
    """Two compilers in a folder, and who asked them for their names."""

    def __init__(self, folder: Path, put: Callable[[object, str, object], None]) -> None:
        from torch._inductor import codecache
        from torch._inductor.runtime import triton_compat

        self.folder = folder
        self.asked: list[str] = []
        self.told: list[bytes] = []
        self.refuse: Callable[[bytes], None] | None = None
        self._put, self._modules = put, (codecache, triton_compat)
        (folder / "backends").mkdir(parents=True)
        (folder / "backends" / "driver.py").write_text("1")

    def named(self) -> tuple[list[str], list[bytes], str]:
        """Who makes a name, who is told one, and Triton's, in a process of its own."""
        self.asked, self.told = [], []

        def torch_key() -> bytes:
            self.asked.append("torch")
            return b"\1\2"

        def triton_key() -> str:
            is_main = threading.current_thread() is threading.main_thread()
            self.asked.append("triton here" if is_main else "triton")
            return "3.0-abc"

        setattr(torch_key, "set", self.refuse or self.told.append)  # noqa: B010  (no attribute of functions)
        codecache, triton_compat = self._modules
        self._put(codecache, "torch_key", torch_key)
        self._put(triton_compat, "triton_key", triton_key)
        thread = start_naming()
        if thread is not None:
            thread.join()
        asked = list(self.asked)
        return asked, self.told, triton_compat.triton_key()


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilers:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setattr(private_files, "SETTLED_NS", 0)
    monkeypatch.setattr(compiler_names, "_folders", lambda: [str(tmp_path / "compilers")])
    return Compilers(tmp_path / "compilers", monkeypatch.setattr)


Named = tuple[list[str], list[bytes], str]
MADE: Named = (["triton", "torch"], [], "3.0-abc")
TOLD: Named = ([], [b"\1\2"], "3.0-abc")


def test_names_are_made_once(compilers: Compilers) -> None:
    assert compilers.named() == MADE
    assert compilers.named() == TOLD
    assert compilers.asked == []  # what Triton says comes from what was kept


@pytest.mark.parametrize("change", ["another", "bytes", "time", "gone"])
def test_other_files_have_other_names(compilers: Compilers, change: str) -> None:
    assert compilers.named() == MADE
    file = compilers.folder / "backends" / "driver.py"
    match change:
        case "another":
            (compilers.folder / "new.py").write_text("1")
        case "bytes":
            file.write_text("2")
        case "time":
            file.touch()
        case _:
            file.unlink()
    assert compilers.named() == MADE
    assert compilers.named() == TOLD


def test_what_python_writes_is_no_part_of_a_compiler(compilers: Compilers) -> None:
    assert compilers.named() == MADE
    (compilers.folder / "__pycache__").mkdir()
    (compilers.folder / "__pycache__" / "a.pyc").write_text("1")
    assert compilers.named() == TOLD


def test_files_that_were_just_written_name_nothing(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "SETTLED_NS", 3_000_000_000)
    assert [compilers.named() for _ in range(2)] == [MADE, MADE]


def test_folders_behind_links_name_nothing(compilers: Compilers, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (compilers.folder / "nvidia").symlink_to(tmp_path / "elsewhere")
    assert [compilers.named() for _ in range(2)] == [MADE, MADE]


def test_damaged_names_count_as_absent(compilers: Compilers, tmp_path: Path) -> None:
    assert compilers.named() == MADE
    (file,) = (tmp_path / "cache").glob("*.names")
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    assert compilers.named() == MADE
    assert compilers.named() == TOLD


def test_names_that_others_can_write_are_not_used(compilers: Compilers, tmp_path: Path) -> None:
    assert compilers.named() == MADE
    (tmp_path / "cache").chmod(0o777)
    assert compilers.named() == MADE


def test_without_a_cache_names_are_made(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_NO_CACHE", "1")
    assert [compilers.named() for _ in range(2)] == [MADE, MADE]


def test_a_compiler_that_cannot_be_named_fails_where_it_is_needed(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.runtime import triton_compat

    def fails() -> str:
        raise OSError("gone")

    monkeypatch.setattr(triton_compat, "triton_key", fails)
    thread = start_naming()
    assert thread is not None
    thread.join()  # an exception of a thread would fail this test


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError])  # PyTorch 2.13, 2.11
def test_triton_is_told_though_pytorch_has_its_name_already(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def refuse(name: bytes) -> None:
        raise kind(name)

    assert compilers.named() == MADE
    monkeypatch.setattr(compilers, "refuse", refuse)
    assert compilers.named() == ([], [], "3.0-abc")
    assert compilers.asked == []
