"""What each level prints for a small input: input and expected output in one file.

A file is PTX, followed by sections that start with a line `//// name`. `pytest --update-golden`
rewrites the sections that a file has; an empty section is filled in. Read the diff.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera import driver, report
from tessera.ir.ptx_text import print_module

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.ptx"))
_SECTION = re.compile(r"^//// (\w+)\n", re.M)


def _print_ptx(path: Path) -> str:
    (module,) = driver.load(path).modules
    return print_module(module.variants[0].ptx)


def _summary(path: Path) -> str:
    return report.report_text(driver.analyze(path))


PRINTERS: dict[str, Callable[[Path], str]] = {"ptx": _print_ptx, "summary": _summary}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_golden(path: Path, tmp_path: Path, update_golden: bool) -> None:
    source, *rest = _SECTION.split(path.read_text(encoding="utf-8"))
    assert rest, "a golden file has at least one section"
    input_file = tmp_path / "input.ptx"
    input_file.write_text(source, encoding="utf-8")
    found = {
        name: PRINTERS[name](input_file).replace(str(input_file), "input.ptx") for name in rest[::2]
    }
    if update_golden:
        sections = "".join(f"//// {name}\n{text}" for name, text in found.items())
        path.write_text(source + sections, encoding="utf-8")
        return
    assert dict(zip(rest[::2], rest[1::2], strict=True)) == found
