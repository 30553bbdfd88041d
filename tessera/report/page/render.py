"""One HTML file of a page, and the page of one HTML file.

In: a `Page`. Out: text that needs no other file and no network. The data is JSON in a script
element that no browser runs; in it `<`, `>` and `&` are escapes, so that no name from a trace can
end the element. A policy in the head allows our own script and style by their digests and nothing
else: no request can leave the page, and no markup in a name could run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path

from tessera.ir.version import __version__
from tessera.output import Kind, mark
from tessera.report.page.json_text import read_json
from tessera.report.page.model import Page, PageSection, bad_page, page_of, page_value

ASSETS = Path(__file__).parent / "assets"
BEGINNING = "<!doctype html>"
_SCRIPTS = (
    "base.js",
    "charts.js",
    "tables.js",
    "answer.js",
    "placement.js",
    "who.js",
    "graph_layout.js",
    "graph.js",
    "graph_detail.js",
    "timeline.js",
    "roofline.js",
    "load.js",
    "page.js",
)
_FONTS = (
    ("Tessera Sans", "100 900", "inter-latin-wght-normal.woff2"),
    ("Tessera Mono", "400", "jetbrains-mono-latin-400-normal.woff2"),
)
_DATA_ID = "tessera-report"
_OPENING = f'<script type="application/json" id="{_DATA_ID}">'
_ENDING = "</script>"
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page_html(page: Page, *, fonts: bool = True) -> str:
    """The HTML file. Without `fonts` it is 100 KB smaller and uses fonts of the reader's system."""
    style = (_font_faces() if fonts else "") + _asset("style.css")
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "font-src data:; img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(page_value(page), separators=(",", ":"), allow_nan=False)
    title = escape(page.title.encode("utf-8", "replace").decode())
    return (
        f'{BEGINNING}\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{mark(Kind.PAGE)}">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title}</title>\n<style>{style}</style></head>\n"
        f'<body><noscript>{_plain(page, title)}</noscript><div id="page"></div>\n'
        f"{_OPENING}{data.translate(_ESCAPES)}{_ENDING}\n"
        f"<script>{script}</script>\n</body></html>\n"
    )


def page_json(page: Page) -> str:
    """The data of a page alone."""
    return json.dumps(page_value(page), indent=1, allow_nan=False) + "\n"


def read_page(text: str, name: str = "<page>") -> Page:
    """The page in an HTML file that `page_html` made; raises `TesseraError` if there is none."""
    start = text.find(_OPENING)
    end = text.find(_ENDING, start)
    if start < 0 or end < 0:
        raise bad_page(name, "it holds no data of a report")
    try:
        value = read_json(text[start + len(_OPENING) : end])
    except ValueError as problem:
        raise bad_page(name, f"of its data, {problem}") from None
    return page_of(value, name)


def _plain(page: Page, title: str) -> str:
    """The text that a browser shows if scripts are off."""
    shown = "".join(f"<li>{escape(_ascii(_line(section)))}</li>" for section in page.sections)
    return (
        f"<h1>{title}</h1><p>The pictures of this report need scripts, which are off here. "
        f"It was made by tessc {__version__} and has these parts:</p><ul>{shown}</ul>"
    )


def _line(section: PageSection) -> str:
    headline = section.data.get("headline")
    return f"{section.title}: {headline}" if isinstance(headline, str) else section.title


def _ascii(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def _font_faces() -> str:
    faces = []
    for family, weight, name in _FONTS:
        data = base64.b64encode((ASSETS / "fonts" / name).read_bytes()).decode()
        faces.append(
            f'@font-face{{font-family:"{family}";font-weight:{weight};font-style:normal;'
            f'src:url(data:font/woff2;base64,{data}) format("woff2")}}\n'
        )
    return "".join(faces)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
