"""What the analysis keeps on disk: the same answer, whoever put what into the folder."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from tessera.diagnostics import Source
from tessera.driver.analyze import analyze
from tessera.driver.load import read_program
from tessera.frontend.cache import analysis_cache
from tessera.frontend.cache.analysis_cache import AnalysisCache
from tessera.ir.graph.print_graph import print_graph
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.footprint import footprint
from tessera.passes.kernel_facts import kernel_code
from tests.unit.passes.test_analysis_scale import trace
from tests.unit.passes.test_findings import WALK, program

ROOT = Path(__file__).resolve().parents[3]
MLP = ROOT / "examples" / "traces" / "mlp.ptx"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "cache"
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(found))
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    return found


Found = tuple[str, list[str]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    """A folder after one analysis, and what that found."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("filled") / "cache"
        patch.setenv("TESSERA_CACHE_DIR", str(path))
        patch.delenv("TESSERA_NO_CACHE", raising=False)
        return path, analyzed()


@pytest.fixture
def first(folder: Path, filled: tuple[Path, Found]) -> Found:
    """What the analysis found that filled the folder."""
    shutil.copytree(filled[0], folder)
    assert files(folder)
    return filled[1]


def analyzed() -> Found:
    report = analyze(MLP)
    assert report.graph is not None
    spans = [str(a.span) for node in report.graph.nodes for a in node.accesses]
    return print_graph(report.graph), spans


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.regions"))


def refuse_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((footprint, "find_footprint"), (kernel_code, "prepare_kernel")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("analysed again"))


def test_the_second_time_nothing_is_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = analyzed()
    assert files(folder)
    refuse_work(monkeypatch)
    assert analyzed() == first


def test_the_setting_that_turns_caches_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NO_CACHE", "1")
    analyzed()
    assert not folder.exists()


def damages() -> list[tuple[str, bytes]]:
    body = json.dumps([{"sm_80": [[], []]}, {"x": [1, 2, 3, 4]}]).encode()
    return [
        ("empty", b""),
        ("text", b"hello"),
        ("pickle", pickle.dumps({"a": 1})),
        ("no checksum", analysis_cache.magic()),
        ("wrong checksum", analysis_cache.magic() + bytes(16) + body),
        ("not json", _sealed(b"{")),
        ("deep", _sealed(b"[" * 100_000)),
        ("number", _sealed(b"7")),
        ("list", _sealed(b"[1, 2, 3]")),
    ]


def _sealed(body: bytes) -> bytes:
    return analysis_cache.magic() + analysis_cache.checksum(body) + body


@pytest.mark.parametrize(("name", "data"), damages(), ids=lambda v: v if isinstance(v, str) else "")
def test_a_damaged_file_is_absent(folder: Path, first: Found, name: str, data: bytes) -> None:
    for path in files(folder):
        path.write_bytes(data)
    assert analyzed() == first
    for path in files(folder):
        assert path.read_bytes().startswith(analysis_cache.magic())


def _wrong_patterns() -> list[object]:
    good_access = [0, "write", "must", "direct", 0, "st.global.u32", None]
    return [
        None,
        7,
        [],
        [[], [], [], [[], []], 9],
        [[good_access], [], [], [[], []], False],
        [[[99, *good_access[1:]]], [["interval", 0, 4]], [], [[], []], False],
        [[[True, *good_access[1:]]], [["interval", 0, 4]], [], [[], []], False],
        [[[0, "steal", *good_access[2:]]], [["interval", 0, 4]], [], [[], []], False],
        [[good_access], [["interval", -4, 4]], [], [[], []], False],
        [[good_access], [["interval", 0.5, 4]], [], [[], []], False],
        [[good_access], [["affine", [[0, 4, [[4]]]]]], [], [[], []], False],
        [[[*good_access[:6], [0, 5, 10**9]]], [["interval", 0, 4]], [], [[], []], False],
        [[good_access], [["interval", 0, 4]], [["fly", "", None]], [[], []], False],
        [[good_access], [["interval", 0, 4]], [], [[77], []], False],
    ]


@pytest.mark.parametrize("pattern", _wrong_patterns(), ids=lambda p: str(p)[:30])
def test_a_pattern_that_is_none_is_found_again(folder: Path, first: Found, pattern: object) -> None:
    """Sealed with a right checksum, as only the user could: still no wrong record, no crash."""
    store = AnalysisCache(folder)
    for path in files(folder):
        facts, patterns = store.find(path.stem)  # type: ignore[misc]
        store.keep(path.stem, [facts, dict.fromkeys(patterns, pattern)])
    assert analyzed() == first


def test_facts_that_are_none_are_found_again(folder: Path, first: Found) -> None:
    store = AnalysisCache(folder)
    for path in files(folder):
        facts, _ = store.find(path.stem)  # type: ignore[misc]
        store.keep(path.stem, [{arch: [[1], "x"] for arch in facts}, {}])
    assert analyzed() == first


def test_another_release_is_not_believed(
    folder: Path, first: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_cache, "magic", lambda: b"tessera-regions 1 9.9.9 0\n")
    store = AnalysisCache(folder)
    assert all(store.find(path.stem) is None for path in files(folder))
    assert analyzed() == first


def test_a_folder_of_others_is_not_used(folder: Path, first: Found) -> None:
    folder.chmod(0o777)
    store = AnalysisCache(folder)
    assert all(store.find(path.stem) is None for path in files(folder))
    count = len(files(folder))
    store.keep("new", [1])
    assert len(files(folder)) == count
    assert analyzed() == first


@pytest.mark.usefixtures("first")
def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    path = files(folder)[0]
    real = tmp_path / "elsewhere"
    os.replace(path, real)
    path.symlink_to(real)
    assert AnalysisCache(folder).find(path.stem) is None


def test_another_text_is_another_kernel(folder: Path) -> None:
    """The name of a file holds the whole text of the module, so nothing goes out of date."""
    store = AnalysisCache(folder)
    program = trace(2)
    before = AccessRegions.remembering(program, store)
    text = program.modules[0].variants[0].text
    assert ", 64, %i" in text
    changed = text.replace("mul.wide.u32 %o, %i, 4", "mul.wide.u32 %o, %i, 2")
    source = "//! tessera.trace 1\n//! buffer a bytes=256 role=state\n//! module m\n" + changed
    source += "\n//! launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[a, a, u32:8, f32:0]\n"
    other = read_program(Source("t.ptx", source))[0]
    after = AccessRegions.remembering(other, store)
    assert before.steps[0].accesses[0].region != after.steps[0].accesses[0].region
    assert after.steps == AccessRegions.remembering(other, None).steps


def test_findings_are_not_lost_to_the_cache(folder: Path) -> None:
    """A launch with something to say about it is looked at again, and says it again."""
    store = AnalysisCache(folder)
    source = Source("t.ptx", "\n".join(_past_its_buffer()) + "\n")
    for _ in range(2):
        (step,) = AccessRegions.remembering(read_program(source)[0], store).steps
        assert [d.code for d in step.diagnostics] == ["TSR2004", "TSR2004"]


def test_a_launch_that_is_too_long_is_widened_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal launches share one result, which is kept, and each has the finding."""
    for name in ("EXACT_BUDGET", "COARSE_BUDGET"):
        monkeypatch.setattr(footprint, name, 100_000)
    runs = []
    find = footprint.find_footprint
    monkeypatch.setattr(
        footprint, "find_footprint", lambda *given: runs.append(given) or find(*given, 100_000)
    )
    line = "launch m.walk grid=1,1,1 block=1,1,1 args=[{}, u32:4000000000]\n"
    wanted = program(line.format("y") + line.format("t"), WALK)
    for count in (1, 0):
        steps = AccessRegions.remembering(wanted, AnalysisCache(folder)).steps
        assert [[d.code for d in step.diagnostics] for step in steps] == [["TSR2006"]] * 2
        assert [access.certainty.value for step in steps for access in step.accesses] == ["may"] * 2
        assert len(runs) == count
        runs.clear()


def _past_its_buffer() -> list[str]:
    text = trace(1).modules[0].variants[0].text
    args = "args=[a, a, u32:61, f32:0]"
    return [
        "//! tessera.trace 1",
        "//! buffer a bytes=100 role=state",
        "//! module m",
        text,
        f"//! launch m.copy grid=1,1,1 block=64,1,1 smem=0 {args}",
    ]
