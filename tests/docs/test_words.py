"""The docs use usual words: phrases that read as if translated stay away."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs import pages
from tests.helpers.each import each

# A phrase and what to write instead.
PHRASES = {
    r"\bhangs? on\b": "depends on",
    r"\bwhoever\b": "the thread that, a user who",
    r"\b(is|are) told\b": "is reported",
    r"\banew\b": "again",
    r"\bheld against\b": "compared with",
    r"\bfor ever\b": "forever",
    r"\b(that|which) data (decides|ends)\b": "that depends on data",
    r"\belse than\b": "other than",
    r"\bfor want of\b": "because it lacks",
    r"\bin place of a [a-z]+ there\b": "instead",
    r"\b(are|is) no whole\b": "not whole",
    r"\bwhich there is none\b": "that does not exist",
    r"\bcards? that there (is|are) not\b": "that does not exist",
    r"\bkinds of \w+ more\b": "more kinds of",
    r"\b(lies|lie|comes|come) behind\b": "follows",
}
WRITTEN = [page for page in pages.PAGES if page.name not in ("cli.md", "codes.md")]


@each([*WRITTEN, *pages.EXPLAIN])
def test_words(page: Path) -> None:
    for phrase, better in PHRASES.items():
        found = re.search(phrase, pages.prose(page), re.IGNORECASE)
        assert found is None, f"`{found[0]}`: write {better}"
