"""The examples on a code's page, from the files in `tests/diagnostics/examples` that show it.

`TSRnnnn.ptx` comes first, then `TSRnnnn_case.ptx` by name: a page has an example of every case.
"""

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


def examples(code: str) -> str:
    """The commands and their messages, as the page shows them."""
    files = sorted(EXAMPLES.glob(f"{code}*.ptx"), key=lambda path: path.stem)
    return "\n\n".join(_example(path, code) for path in files)


def _example(path: Path, code: str) -> str:
    name = "trace.ptx" if path.read_bytes().count(b"//!") else "kernel.ptx"
    shown = render.render_full(found for found in findings(path) if found.code == code)
    message = _EXPECTATION.sub("", shown).replace(str(path), name)
    return f"```\n$ tessc analyze {name}\n{message}\n```"


def with_examples(page: str, text: str) -> str:
    """A page with the text of its examples replaced, also where there was none yet."""
    return _SECTION.sub(lambda _: f"## Example\n\n{text}\n\n", page)
