"""What each level says about a small input: input and output in one file (`tests/helpers/golden`).

`pytest --update-golden` makes the output sections again; an empty section is filled in. Read the
diff. Each folder holds one kind of file, and every file of it has the sections of its kind.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.golden import edit, made_anew, print_golden, read_golden

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.ptx"))
# Folder: the sections of which its files have at least one, and the least number of files.
KINDS = {
    "regions": ({"regions"}, 6),
    "graphs": ({"steps", "graph"}, 6),
    "placements": ({"plan"}, 6),
    "programs": ({"program"}, 6),
    "verdicts": ({"verdict"}, 6),
    "findings": ({"findings"}, 1),
    "ptx_text": ({"ptx"}, 1),
    "summarise_kernels": ({"summary"}, 1),
}
LONGEST = 80
FEWEST = 40


def _name(path: Path) -> str:
    return str(path.relative_to(HERE))


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_golden(path: Path, tmp_path: Path, update_golden: bool) -> None:
    text = path.read_text(encoding="utf-8")
    sections = read_golden(text)
    found = print_golden(made_anew(sections, tmp_path))
    if update_golden:
        path.write_text(found, encoding="utf-8")
        return
    assert text == found


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_files_are_short_and_of_their_kind(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted, _ = KINDS[path.parent.name]
    assert wanted & {section.name for section in read_golden(text)}
    assert len(text.splitlines()) < LONGEST
    if path.parent.name not in ("ptx_text", "summarise_kernels"):
        assert text.startswith("// "), "a comment at the top says what to see"


def test_there_are_enough_of_each_kind() -> None:
    counts = Counter(path.parent.name for path in FILES)
    assert {name for name, (_, least) in KINDS.items() if counts[name] < least} == set()
    assert sum(counts[name] for name, (_, least) in KINDS.items() if least > 1) >= FEWEST


def test_none_is_another_with_numbers_changed() -> None:
    seen: dict[str, Path] = {}
    for path in FILES:
        given = [one.text for one in read_golden(path.read_text("utf-8")) if one.is_given]
        bare = "\n".join(line for line in "".join(given).splitlines() if line[:3] != "// ")
        key = re.sub(r"\d+", "0", bare)
        assert key not in seen, f"{path} and {seen.get(key)}"
        seen[key] = path


@pytest.mark.parametrize("kind", [name for name, (_, least) in KINDS.items() if least > 1])
def test_the_concepts_point_to_every_file(kind: str) -> None:
    pages = "".join(page.read_text("utf-8") for page in (HERE.parents[1] / "docs").rglob("*.md"))
    missing = [
        p.name for p in (HERE / kind).glob("*.ptx") if f"golden/{kind}/{p.name})" not in pages
    ]
    assert missing == []


def test_edits() -> None:
    text = "a\n  b 1\n  c\nb 1\n"
    assert edit(text, "- b 1\n") == "a\n  c\nb 1\n"
    assert edit(text, "@ c\n+ d\n") == "a\n  b 1\n  d\n  c\nb 1\n"
    assert edit(text, "@ b\n~ 1 -> 2\n") == "a\n  b 2\n  c\nb 1\n"
    with pytest.raises(StopIteration):
        edit(text, "- z\n")
