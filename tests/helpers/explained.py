"""The example on a code's page, from the file in `tests/diagnostics/examples` that shows it."""

from __future__ import annotations

import re
from pathlib import Path

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.driver.analyze import analyze
from tessera.report import diagnostics as render

EXAMPLES = Path(__file__).parents[1] / "diagnostics" / "examples"
_EXPECTATION = re.compile(r"[ \t]*// expect(?:-next|-above)?:[^\n]*")
_SECTION = re.compile(r"^## Example\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def findings(path: Path) -> list[Diagnostic]:
    """What is found in a file, errors or not."""
    try:
        return list(analyze(path).diagnostics)
    except TesseraError as failure:
        return list(failure.diagnostics)


def example(code: str) -> str:
    """The command and its message, as the page shows them."""
    path = EXAMPLES / f"{code}.ptx"
    name = "trace.ptx" if path.read_bytes().count(b"//!") else "kernel.ptx"
    shown = render.render_full(found for found in findings(path) if found.code == code)
    message = _EXPECTATION.sub("", shown).replace(str(path), name)
    return f"```\n$ tessc analyze {name}\n{message}\n```"


def with_example(page: str, text: str) -> str:
    """A page with the text of its example replaced, also where there was none yet."""
    return _SECTION.sub(lambda _: f"## Example\n\n{text}\n\n", page)
