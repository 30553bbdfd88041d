"""Pages to look at that never change: what tests of the drawing and pictures of the docs show.

`dit.json.xz` is the data of a page of the trace `dit`, split by kernels as asked for, with what
`tessc plan --json` said of the plan, a simulation of requests that come at random, a run and its
timeline. `llama-8b.json.xz` is that of a plan in which GPUs have roles, without its graphs:

    tessc plan examples/large/llama-8b-decode-b64.ptx examples/large/llama-8b-prefill-1024.ptx \\
        --gpus a100,l40s --library vllm --pareto --json -o llama-8b.tsp > llama-8b.json

Make one again with

    python -m tests.browser.sample dit FILE...

and make the pictures again after that (`shots.py`).
"""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import replace
from pathlib import Path

from tessera.report.page.build import build_page
from tessera.report.page.inputs import read_given
from tessera.report.page.model import Page, page_of, page_value

SPLIT, ROLES = "dit", "llama-8b"


def _file(name: str) -> Path:
    return Path(__file__).parent / f"{name}.json.xz"


def sample_page(name: str = SPLIT) -> Page:
    """The page."""
    return page_of(json.loads(lzma.decompress(_file(name).read_bytes())), name)


def main() -> None:
    """Write one again."""
    name, *files = sys.argv[1:]
    command = f"tessc report {' '.join(files)}"
    page = build_page(read_given(files, command=command), f"{name} - Tessera report")
    if name == ROLES:
        kept = tuple(section for section in page.sections if section.kind != "graph")
        page = replace(page, sections=kept)
    _file(name).write_bytes(lzma.compress(json.dumps(page_value(page)).encode(), preset=9))


if __name__ == "__main__":
    main()
