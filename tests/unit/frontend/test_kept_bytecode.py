"""Bytecode of installed packages is kept where Python keeps none, for the same file alone."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest

from tessera.frontend.cache import kept_bytecode as bytecode
from tessera.frontend.cache import private_files
from tessera.frontend.cache.kept_bytecode import BytecodeStore, kept_bytecode


def counted(path: Path, store: BytecodeStore) -> tuple[object, int]:
    """What a file sets `value` to, by a store, and how often it was compiled for that."""
    times = 0

    def compiled() -> CodeType:
        nonlocal times
        times += 1
        return compile(path.read_text(), str(path), "exec")

    code = store.code_of(str(path), compiled)
    assert code is not None
    names: dict[str, object] = {}
    exec(code, names)
    return names["value"], times


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of these tests are new, and counted as if they were not."""
    monkeypatch.setattr(private_files, "SETTLED_NS", 0)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder / "x.bytecode"


def store_of(kept: Path) -> BytecodeStore:
    return BytecodeStore(kept, (str(kept.parents[1]),))


def test_a_file_is_compiled_once(tmp_path: Path, kept: Path) -> None:
    file, other = tmp_path / "a.py", tmp_path / "b.py"
    file.write_text("value = 1")
    other.write_text("value = 7")
    for times in (1, 0):
        store = store_of(kept)
        assert counted(file, store) == (1, times)
        assert counted(other, store) == (7, times)
        store.keep()


def test_a_file_that_changed_is_compiled_again(tmp_path: Path, kept: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("value = 1")
    status = file.stat()
    store = store_of(kept)
    assert counted(file, store) == (1, 1)
    store.keep()
    file.write_text("value = 2")  # as many bytes, and the time is set back
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    store = store_of(kept)
    assert counted(file, store) == (2, 1)
    store.keep()
    assert counted(file, store_of(kept)) == (2, 0)


def test_a_file_that_was_just_written_is_not_kept(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "SETTLED_NS", 3_000_000_000)
    file = tmp_path / "a.py"
    file.write_text("value = 1")
    store = store_of(kept)
    assert counted(file, store) == (1, 1)
    store.keep()
    assert not kept.exists()


@pytest.mark.parametrize("place", [0, 20, 60, -1])
def test_a_damaged_store_counts_as_absent(tmp_path: Path, kept: Path, place: int) -> None:
    file = tmp_path / "a.py"
    file.write_text("value = 1")
    store = store_of(kept)
    counted(file, store)
    store.keep()
    data = bytearray(kept.read_bytes())
    data[place] ^= 4
    kept.write_bytes(data)
    assert counted(file, store_of(kept)) == (1, 1)
    kept.write_bytes(bytes(data[: len(data) // 2]))
    assert counted(file, store_of(kept)) == (1, 1)


def test_files_of_the_user_are_left_alone(tmp_path: Path, kept: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("value = 1")
    for _ in range(2):
        store = BytecodeStore(kept, (str(tmp_path / "installed"),))
        assert counted(file, store) == (1, 1)
        store.keep()
    assert not kept.exists()


def test_a_store_that_others_can_write_to_is_not_used(tmp_path: Path, kept: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("value = 1")
    store = store_of(kept)
    counted(file, store)
    store.keep()
    kept.parent.chmod(0o777)
    assert counted(file, store_of(kept)) == (1, 1)


def test_packages_without_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "packed_up"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from packed_up.part import value")
    (package / "part.py").write_text("value = 5")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(bytecode, "_roots", lambda: (str(tmp_path / "site"),))
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    compiled: list[str] = []
    before = SourceFileLoader.source_to_code
    loads = SourceFileLoader.get_code

    def noted(loader: SourceFileLoader, data: bytes, path: str, **named: int) -> CodeType:
        compiled.append(Path(path).name)
        code: CodeType = before(loader, data, path, **named)
        return code

    def imported() -> list[str]:
        compiled.clear()
        for name in [name for name in sys.modules if name.startswith("packed_up")]:
            del sys.modules[name]
        with kept_bytecode("packed_up"):
            assert importlib.import_module("packed_up").value == 5
        assert SourceFileLoader.get_code is loads
        return [name for name in compiled if name in ("__init__.py", "part.py")]

    monkeypatch.setattr(SourceFileLoader, "source_to_code", noted)
    assert imported() == ["__init__.py", "part.py"]
    assert imported() == []
    monkeypatch.setenv("TESSERA_NO_CACHE", "1")
    assert imported() == ["__init__.py", "part.py"]
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # Python keeps it beside the package
    assert imported() == ["__init__.py", "part.py"]
    assert (package / "__pycache__").is_dir()
    with kept_bytecode("no_such_package"):
        assert SourceFileLoader.get_code is loads


def test_loaders_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that check types load others by loaders that change the code."""
    file = tmp_path / "a.py"
    file.write_text("value = 1")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setattr(bytecode, "_roots", lambda: (str(tmp_path),))
    monkeypatch.setattr(bytecode, "_is_without", lambda package: True)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    class Changing(SourceFileLoader):
        def source_to_code(self, data: bytes, path: str, **_: int) -> CodeType:  # type: ignore[override]
            return compile(data.replace(b"1", b"2"), path, "exec")

    def value(kind: type[SourceFileLoader]) -> object:
        names: dict[str, object] = {}
        with kept_bytecode("torch"):
            code = kind("a", str(file)).get_code("a")
        assert code is not None
        exec(code, names)
        return names["value"]

    assert [value(SourceFileLoader), value(Changing), value(SourceFileLoader)] == [1, 2, 1]
