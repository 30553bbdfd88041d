"""Pictures of the report page: those that tests compare with, and those of the docs.

    python -m tests.browser.shots

writes `tests/browser/shots` and `docs/guides/images` from the sample. Look at the pictures before
they are kept.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tessera.report.page.render import page_html
from tests.browser.chromium import Watched, chromium
from tests.browser.sample import sample_page

SIZES = ((1400, 900), (900, 1100), (390, 844))
SHOTS = Path(__file__).parent / "shots"
IMAGES = Path(__file__).parents[2] / "docs" / "guides" / "images"
STOPS = ("answer", "graph-0", "timeline-0", "roofline")


def shot_name(width: int, stop: str) -> str:
    """The file of a picture."""
    return f"{stop}-{width}.png"


def prepare(watched: Watched, stop: str) -> None:
    """Bring a section to the top of the window; of the graph a step is chosen."""
    if stop == "graph-0":
        watched.tab.locator("#graph-0 input[type=search]").fill("#5")
    watched.tab.evaluate("name => document.getElementById(name).scrollIntoView()", stop)


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(exist_ok=True)
    SHOTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = Path(folder) / "sample.html"
        page.write_text(page_html(sample_page()))
        for width, height in SIZES:
            watched = Watched(browser, width, height)
            watched.open(page)
            for stop in STOPS if width == SIZES[0][0] else STOPS[:2]:
                prepare(watched, stop)
                (SHOTS / shot_name(width, stop)).write_bytes(watched.shot())
            watched.context.close()
        for name, stop, theme in (
            ("report-answer", "answer", "light"),
            ("report-graph", "graph-0", "light"),
            ("report-timeline", "timeline-0", "dark"),
        ):
            watched = Watched(browser, 1240, 780, theme)
            watched.open(page)
            prepare(watched, stop)
            (IMAGES / f"{name}.png").write_bytes(watched.shot())
            watched.context.close()


if __name__ == "__main__":
    main()
