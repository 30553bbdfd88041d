"""A page to look at that never changes: what tests of the drawing and pictures of the docs show.

`sample.json.xz` is the data of a page of the trace `dit`, with a plan, what `tessc plan --json`
said of it, a simulation of requests that come at random, a run and its timeline. Make it again with

    python -m tests.browser.sample FILE...

from such files, and make the pictures again after that (`shots.py`).
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from tessera.report.page.build import build_page
from tessera.report.page.inputs import read_given
from tessera.report.page.model import Page, page_of, page_value

SAMPLE = Path(__file__).parent / "sample.json.xz"


def sample_page() -> Page:
    """The page."""
    return page_of(json.loads(lzma.decompress(SAMPLE.read_bytes())), "the sample")


def main() -> None:
    """Write it again."""
    names = sys.argv[1:]
    command = f"tessc report {' '.join(names)}"
    page = build_page(read_given(names, command=command), "dit - Tessera report")
    SAMPLE.write_bytes(lzma.compress(json.dumps(page_value(page)).encode(), preset=9))


if __name__ == "__main__":
    main()
