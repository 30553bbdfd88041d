"""`load` and `analyze`, and the cache behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.driver.analyze import analyze
from tessera.driver.load import load

PTX = ".version 8.0\n.target sm_80\n.visible .entry k()\n{\n    .reg .b32 %r;\n    ret;\n}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "k.ptx"
    path.write_text(PTX)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, in use."""
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_load_gives_the_program_that_analyze_reports_on(file: Path) -> None:
    assert load(file) == analyze(file).program


def test_a_second_reading_comes_from_the_cache(file: Path, cache: Path) -> None:
    first = analyze(file)
    (kept,) = cache.iterdir()
    written = kept.stat().st_mtime_ns
    assert analyze(file) == first
    assert kept.stat().st_mtime_ns == written


def test_a_damaged_cache_changes_nothing(file: Path, cache: Path) -> None:
    first = analyze(file)
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert analyze(file) == first


def test_warnings_are_not_lost_in_the_cache(file: Path, cache: Path) -> None:
    file.write_text(PTX.replace("ret;", "_fnord.b32 %r; ret;"))
    first = analyze(file).diagnostics
    assert [found.code for found in first] == ["TSR1025"]
    assert [found.code for found in analyze(file).diagnostics] == ["TSR1025"]


def test_positions_from_the_cache_are_those_of_the_file(file: Path, cache: Path) -> None:
    """The same module further down in a trace: same content, other lines."""
    trace = file.with_name("t.ptx")
    trace.write_text("//! tessera.trace 1\n//! module m0\n" + PTX)
    lines = [
        analyze(path).summary.variants[0].summary.kernels[0].line for path in (file, trace, trace)
    ]
    assert lines == [3, 5, 5]


def test_no_cache_writes_nothing(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NO_CACHE", "1")
    analyze(file)
    assert not cache.exists()


def test_a_cache_folder_that_cannot_be_made_is_no_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(file / "cache"))
    assert analyze(file).diagnostics == ()


def test_verification_between_stages(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_VERIFY", "1")
    assert analyze(file).diagnostics == ()
    monkeypatch.setattr(
        "tessera.ir.ptx.print_ptx.print_module", lambda _: PTX.replace(" k()", " other()")
    )
    with pytest.raises(RuntimeError, match="does not give the module that was printed"):
        analyze(file)


def test_kernels_that_are_not_launched_stay_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_NO_CACHE", "1")
    text = Path("examples/traces/mlp.ptx").read_text()
    left_out = "//! launch m0.relu"
    lines = [line for line in text.splitlines() if not line.startswith(left_out)]
    path = tmp_path / "less.ptx"
    path.write_text("\n".join(lines) + "\n")
    report = analyze(path)
    (module,) = report.program.modules
    unread = {f.name for variant in module.variants for f in variant.ptx.functions() if f.unread}
    assert unread == {"relu"}
