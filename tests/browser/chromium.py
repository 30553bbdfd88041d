"""A headless Chromium for tests and pictures, with what it reports.

Playwright drives it: its own browser, or the one of the system (`TESSERA_CHROMIUM`, else what is
on PATH). Where either is missing a test is skipped, unless `TESSERA_REQUIRE_BROWSER=1`.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED = os.environ.get("TESSERA_REQUIRE_BROWSER") == "1"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_COMPARE = """async ([one, two]) => {
  const pixels = async (data) => {
    const image = new Image();
    image.src = "data:image/png;base64," + data;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d");
    pen.drawImage(image, 0, 0);
    return pen.getImageData(0, 0, image.width, image.height);
  };
  const a = await pixels(one), b = await pixels(two);
  if (a.width !== b.width || a.height !== b.height) return 1;
  let off = 0;
  for (let i = 0; i < a.data.length; i += 4) {
    const far = (n) => Math.abs(a.data[i + n] - b.data[i + n]) > 12;
    if (far(0) || far(1) || far(2)) off++;
  }
  return off / (a.data.length / 4);
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, or a reason to skip."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        missing("Playwright is not installed: pip install --group browser")
    named = os.environ.get("TESSERA_CHROMIUM") or next(
        filter(None, map(shutil.which, _NAMES)), None
    )
    with sync_playwright() as playwright:
        try:
            arguments = ["--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text"]
            browser = playwright.chromium.launch(executable_path=named, args=arguments)
        except Error:
            missing("there is no Chromium: install one, or name it in TESSERA_CHROMIUM")
        yield browser
        browser.close()


def missing(why: str) -> None:
    """Skip, or fail where a browser was asked for."""
    if REQUIRED:
        pytest.fail(why)
    pytest.skip(why)


class Watched:
    """A tab that opens a file and keeps what it complains of and asks for."""

    def __init__(self, browser: Browser, width: int, height: int, theme: str = "light") -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        self.tab: Page = self.context.new_page()
        self.tab.on("console", lambda m: m.type == "error" and self.complaints.append(m.text))
        self.tab.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        self.tab.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.tab.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> None:
        """Open a page, with all sections drawn."""
        self.tab.goto(path.as_uri())
        self.tab.evaluate("T.drawAll()")
        self.tab.evaluate("document.fonts.ready")

    def shot(self) -> bytes:
        """What the window shows."""
        self.tab.wait_for_timeout(200)
        return self.tab.screenshot(animations="disabled")


def difference(tab: Page, one: bytes, two: bytes) -> float:
    """The share of pixels in which two pictures differ to the eye."""
    pair = [base64.b64encode(picture).decode() for picture in (one, two)]
    return float(tab.evaluate(_COMPARE, pair))
