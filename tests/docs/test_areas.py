"""The page of areas has every folder of the package."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT, read


def test_every_folder_has_a_row() -> None:
    page = read(DOCS / "developer" / "areas.md")
    rows = set(re.findall(r"^\| `(tessera/[\w/]+)` \|", page, re.MULTILINE))
    package = ROOT / "tessera"
    folders = {
        path.relative_to(ROOT).as_posix()
        for pattern in ("*", "*/*")
        for path in package.glob(pattern)
        if path.is_dir() and path.name != "__pycache__" and any(path.glob("*.*"))
    }
    layers = {"tessera/frontend", "tessera/passes", "tessera/backend", "tessera/ir"}
    inside = {"tessera/backend/cuda"}
    parts = {f for f in folders if any(f.startswith(f"{each}/") for each in inside)}
    assert rows == folders - layers - parts
