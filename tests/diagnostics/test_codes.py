"""The table of codes, the pages and the code that reports them agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tessera
from tessera import codes
from tests.helpers.command import tessc
from tests.helpers.each import each
from tests.helpers.explained import EXAMPLES, examples, with_examples

PACKAGE = Path(tessera.__file__).parent
TESTS = Path(__file__).parents[1]
CODE = re.compile(r"\bTSR\d{4}\b")
SECTIONS = ["What it means", "Why it matters", "Example", "What to do"]


def codes_in(paths: list[Path]) -> set[str]:
    return {code for path in paths for code in CODE.findall(path.read_text("utf-8", "replace"))}


def reported() -> set[str]:
    sources = [p for p in PACKAGE.rglob("*.py") if p.name != "codes.py"]
    return codes_in(sources)


def test_every_code_reported_is_in_the_table() -> None:
    assert reported() - {entry.code for entry in codes.CODES} == set()


def test_every_code_in_the_table_is_reported() -> None:
    assert {entry.code for entry in codes.CODES} - reported() == set()


def test_every_code_is_tested() -> None:
    tested = codes_in([p for p in TESTS.rglob("*") if p.suffix in (".py", ".ptx")])
    assert {entry.code for entry in codes.CODES} - tested == set()


def test_the_table_is_sorted_and_has_no_duplicates() -> None:
    listed = [entry.code for entry in codes.CODES]
    assert listed == sorted(set(listed))


def test_every_page_belongs_to_a_code() -> None:
    pages = {path.stem for path in (PACKAGE / "explain").glob("*.md")}
    assert pages == {entry.code for entry in codes.CODES}


@pytest.mark.parametrize("code", sorted({path.stem[:7] for path in EXAMPLES.glob("*.ptx")}))
def test_examples_on_the_page_are_what_tessc_prints(code: str, update_golden: bool) -> None:
    page = PACKAGE / "explain" / f"{code}.md"
    wanted = with_examples(page.read_text("utf-8"), examples(code))
    if update_golden:
        page.write_text(wanted, "utf-8")
    assert page.read_text("utf-8") == wanted


@each(codes.CODES)
def test_page(entry: codes.Code) -> None:
    page = codes.explain(entry)
    assert page.splitlines()[0] == f"# {entry.code}: {entry.title}"
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    for body in re.split(r"^## .*$", page, flags=re.MULTILINE)[1:]:
        assert len(body.strip()) > 10
    former = set(codes.FORMER_CODES.get(entry.code, ()))
    assert set(CODE.findall(page)) - former <= {known.code for known in codes.CODES}


@pytest.mark.parametrize("typed", ["TSR1905", "tsr1905", "1905", " TSR1905 "])
def test_explain(typed: str) -> None:
    outcome = tessc("explain", typed)
    assert outcome.code == 0
    assert outcome.text == codes.explain(
        codes.CODES[[c.code for c in codes.CODES].index("TSR1905")]
    )


def test_former_codes_are_cases_of_one_code_each() -> None:
    listed = [old for every in codes.FORMER_CODES.values() for old in every]
    assert len(listed) == len(set(listed))
    assert not set(listed) & {entry.code for entry in codes.CODES}
    for new, every in codes.FORMER_CODES.items():
        for old in every:
            entry = codes.find_code(old)
            assert entry is not None
            assert entry.code == new


def test_a_former_code_is_explained() -> None:
    outcome = tessc("explain", "1906")
    assert outcome.code == 0
    assert outcome.text.startswith("# TSR1905: ")
    assert "TSR1906" in outcome.text


def test_explain_lists_all_codes() -> None:
    lines = tessc("explain").text.splitlines()
    assert [line.split()[0] for line in lines] == [entry.code for entry in codes.CODES]


@pytest.mark.parametrize("typed", ["TSR1995", "TSR19O5", "TSR190"])
def test_unknown_code_suggests_near_ones(typed: str) -> None:
    outcome = tessc("explain", typed)
    assert outcome.code == 2
    assert "did you mean `TSR19" in outcome.err


def test_unknown_code_without_anything_near() -> None:
    outcome = tessc("explain", "zzz\x1b[31m")
    assert outcome.code == 2
    assert "`tessc explain` lists all codes" in outcome.err
    assert "\x1b" not in outcome.err


def test_explain_finds_words_of_the_title() -> None:
    assert "`TSR1909`" in tessc("explain", "compressed").err
