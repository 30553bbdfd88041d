"""The module cache: right when it answers, and silent about everything else."""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.diagnostics import Source
from tessera.frontend.cache import module_cache as cache_module
from tessera.frontend.cache import private_files
from tessera.frontend.cache.module_cache import ModuleCache
from tessera.frontend.ptx.read_ptx import load_module, parse_module
from tessera.ir.ptx import syntax as ptx

TEXT = """\
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 table[4] = {1, 2, 3, 4};
.visible .entry first(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 s[16])
.maxntid 128, 1, 1
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    .reg .pred %p;
    ld.param.u64 %rd1, [a];
    .loc 1 12 3, function_name $L, inlined_at 1 2 3
    setp.eq.u32 %p, %r1, ((3 << 2) + 1);
    { .reg .b32 %r1; mov.b32 %r1, -4; }
    @!%p ld.global.v2.u32 {%r2, _}, [%rd1+-8];
$L:
    ret;
}
.func (.param .b32 result) second(.param .b32 x) { ret; }
.section .debug_str { .b8 1, 2 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    return path


def stored(folder: Path, text: str = TEXT) -> tuple[ModuleCache, Source, Path]:
    cache, source = ModuleCache(folder), Source("a.ptx", text)
    load_module(source, cache)
    (path,) = folder.iterdir()
    return cache, source, path


def test_a_module_comes_back_equal_with_its_positions(folder: Path) -> None:
    cache, source, _ = stored(folder)
    found = cache.find(source)
    assert found is not None
    expected = parse_module(TEXT)
    module = found.module()
    assert module == expected
    assert [item.at for item in module.items] == [item.at for item in expected.items]
    for mine, theirs in zip(module.kernels(), expected.kernels(), strict=True):
        ours = [s.at for s in ptx.walk_statements(mine.body or ())]
        assert ours == [s.at for s in ptx.walk_statements(theirs.body or ())]


def test_the_index_has_everything_but_bodies(folder: Path) -> None:
    cache, source, _ = stored(folder)
    found = cache.find(source)
    assert found is not None
    assert [f.name for f in found.index.functions()] == ["first", "second"]
    assert all(f.body is None for f in found.index.functions())
    expected = next(parse_module(TEXT).kernels())
    assert found.body("first") == expected.body
    with pytest.raises(KeyError):
        found.body("third")


def test_the_second_load_does_not_parse(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, source, _ = stored(folder)
    monkeypatch.setattr(
        "tessera.frontend.ptx.read_ptx.parse_source", lambda _: pytest.fail("parsed")
    )
    assert load_module(source, cache)[0] == cache.find(source).module()  # type: ignore[union-attr]


def test_warnings_come_again_from_the_cache(folder: Path) -> None:
    text = TEXT.replace("ret;\n}\n.func", "frobnicate.b32 [%rd1], %r1;\n ret;\n}\n.func")
    text = re.sub(r"\.version \d+\.\d+", ".version 9.9", text)  # newer than the table
    cache, source, _ = stored(folder, text)
    _, first = load_module(source)
    _, again = load_module(source, cache)
    assert [d.code for d in first] == ["TSR1025"]
    assert first == again


def test_every_damaged_byte_is_noticed(folder: Path) -> None:
    cache, source, path = stored(folder)
    data = path.read_bytes()
    expected = parse_module(TEXT)
    for position in range(0, len(data), 29):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        assert load_module(source, cache)[0] == expected, position


@pytest.mark.parametrize("keep", [0, 1, 20, 60, 200, -1])
def test_a_truncated_file_is_parsed_anew(folder: Path, keep: int) -> None:
    cache, source, path = stored(folder)
    data = path.read_bytes()
    path.write_bytes(data[:keep])
    assert load_module(source, cache)[0] == parse_module(TEXT)
    assert path.read_bytes() == data, "and the good bytes are put in its place"


def test_another_release_is_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, source, _ = stored(folder)
    monkeypatch.setattr(cache_module, "magic", lambda: b"tessera-module 1 9.9.9 0\n")
    assert cache.find(source) is None


def test_a_pickle_is_not_run(folder: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "trapped"),)

    cache, source, path = stored(folder)
    path.write_bytes(pickle.dumps(Trap()))
    assert load_module(source, cache)[0] == parse_module(TEXT)
    path.write_bytes(cache_module.magic() + pickle.dumps(Trap()))
    assert load_module(source, cache)[0] == parse_module(TEXT)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_others_may_write_to_is_not_used(folder: Path, mode: int) -> None:
    cache, source, path = stored(folder)
    os.chmod(folder, mode)
    assert cache.find(source) is None
    path.unlink()
    load_module(source, cache)
    assert not list(folder.iterdir())


def test_a_foreign_folder_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, source, _ = stored(folder)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cache.find(source) is None


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    cache, source, path = stored(folder)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.find(source) is None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ModuleCache(tmp_path / "file" / "cache")
    assert load_module(Source("a.ptx", TEXT), cache)[0] == parse_module(TEXT)


def test_a_full_disk_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    load_module(Source("a.ptx", TEXT), ModuleCache(folder))
    assert not list(folder.iterdir())


def test_many_writers_at_once(folder: Path) -> None:
    texts = [TEXT.replace("first", f"kernel{i % 3}") for i in range(12)]
    expected = [parse_module(text) for text in texts]
    results: list[ptx.Module | None] = [None] * len(texts)

    def work(i: int) -> None:
        results[i] = load_module(Source("a.ptx", texts[i]), ModuleCache(folder))[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == expected
    assert len(list(folder.iterdir())) == 3


def test_the_folder_is_kept_below_its_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, _, path = stored(folder)
    trimmer = private_files.Trimmer(2 * path.stat().st_size + 100)
    monkeypatch.setattr("tessera.frontend.cache.module_cache.TRIMMER", trimmer)
    os.utime(path, (1, 1))
    for name in ("b", "c", "d"):
        load_module(Source("a.ptx", TEXT.replace("first", name)), cache)
    assert len(list(folder.iterdir())) == 2
    assert not path.exists()


def test_the_folder_is_not_looked_through_for_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times as many files are not looked at a hundred times as often."""
    looked = 0
    entries = private_files._entries

    def counted(folder: Path) -> Iterator[tuple[Path, float, int]]:
        nonlocal looked
        for entry in entries(folder):
            looked += 1
            yield entry

    monkeypatch.setattr(private_files, "_entries", counted)
    for count in (200, 2000):
        folder, looked = tmp_path / str(count), 0
        folder.mkdir()
        trimmer = private_files.Trimmer(100 * 1000)
        for number in range(count):
            (folder / f"{number}.module").write_bytes(bytes(100))
            os.utime(folder / f"{number}.module", (number, number))
            trimmer.wrote(folder, 100)
            if number % 50 == 0:
                assert sum(one.stat().st_size for one in folder.iterdir()) <= 100 * 1000
        assert looked < 20 * count
    left = sorted(int(one.stem) for one in folder.iterdir())
    assert left == list(range(left[0], 2000))  # the oldest went


def test_files_of_other_processes_count(tmp_path: Path) -> None:
    ours, theirs = private_files.Trimmer(1600), private_files.Trimmer(1600)
    for number in range(100):
        for trimmer, name in ((ours, "a"), (theirs, "b")):
            (tmp_path / f"{name}{number}.module").write_bytes(bytes(50))
            trimmer.wrote(tmp_path, 50)
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= 1600 + 2 * 150
