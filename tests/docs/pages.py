"""The pages that tests of the docs look at, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES = sorted([*TOP, *DOCS.rglob("*.md")])
EXPLAIN = sorted((ROOT / "tessera" / "explain").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    """A page as tests call it."""
    return page.relative_to(ROOT).as_posix()


def read(page: Path) -> str:
    """The text of a page."""
    return page.read_text("utf-8")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", read(page))


def quoted(page: Path) -> list[str]:
    """What stands between backticks in a page, outside blocks of code."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of code of one language."""
    return [body for kind, body in FENCE.findall(read(page)) if kind == language]
