"""Pictures of the report page: those that tests compare with, and those of the docs.

    python -m tests.browser.shots

writes `tests/browser/shots` and `docs/guides/images` from the samples. Look at the pictures before
they are kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.report.page.render import page_html
from tests.browser.chromium import Watched, chromium
from tests.browser.sample import ROLES, SPLIT, sample_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HEIGHTS = {1280: 800, 1920: 1080, 390: 844}
VIEWS = tuple((width, theme) for width in HEIGHTS for theme in ("light", "dark"))
"""Widths and themes in which everybody must be able to read the page."""

STOPS = {
    **dict.fromkeys(((SPLIT, view) for view in VIEWS), ("answer",)),
    **dict.fromkeys(((ROLES, view) for view in VIEWS), ("answer",)),
    (SPLIT, (1280, "light")): ("answer", "graph-0", "timeline-0"),
    (SPLIT, (390, "light")): ("answer", "graph-0"),
    (ROLES, (1280, "light")): ("answer", "roofline"),
    (ROLES, (1920, "dark")): ("answer", "roofline"),
    (ROLES, (390, "dark")): ("answer", "roofline"),
}
"""The sections that are pictured, by sample and view."""

SHOTS = Path(__file__).parent / "shots"
IMAGES = Path(__file__).parents[2] / "docs" / "guides" / "images"


def written(name: str, folder: Path) -> Path:
    """The page of a sample as a file."""
    path = folder / f"{name}.html"
    path.write_text(page_html(sample_page(name)))
    return path


def pictures(browser: Browser, page: Path, view: tuple[int, str]) -> Iterator[tuple[Path, bytes]]:
    """The pictures of a sample in a view, and the files that keep them."""
    width, theme = view
    watched = Watched(browser, width, HEIGHTS[width], theme)
    watched.open(page)
    for stop in STOPS[page.stem, view]:
        prepare(watched, stop)
        yield SHOTS / f"{page.stem}-{stop}-{width}-{theme}.png", watched.shot()
    watched.context.close()


def prepare(watched: Watched, stop: str) -> None:
    """Bring a section to the top of the window; of the graph a step is chosen."""
    if stop == "graph-0":
        watched.tab.locator("#graph-0 input[type=search]").fill("#5")
    go = "scrollTo(0, 0)" if stop == "answer" else "document.getElementById(name).scrollIntoView()"
    watched.tab.evaluate(f"name => {go}", stop)


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(exist_ok=True)
    SHOTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        pages = {name: written(name, Path(folder)) for name in (SPLIT, ROLES)}
        for name, view in STOPS:
            for path, picture in pictures(browser, pages[name], view):
                path.write_bytes(picture)
        for image, name, stop, theme in (
            ("report-answer", ROLES, "answer", "light"),
            ("report-graph", SPLIT, "graph-0", "light"),
            ("report-timeline", SPLIT, "timeline-0", "dark"),
            ("report-roofline", ROLES, "roofline", "light"),
        ):
            watched = Watched(browser, 1240, 780, theme)
            watched.open(pages[name])
            prepare(watched, stop)
            (IMAGES / f"{image}.png").write_bytes(watched.shot())
            watched.context.close()


if __name__ == "__main__":
    main()
