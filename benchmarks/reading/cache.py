"""How much faster a module comes from the cache than from its text.

    python -m benchmarks.reading.cache [--repeats 3] [--out benchmarks/results/cache.json]

Over the corpus: parsing and verifying, against finding the index of the module (everything but
function bodies), against the whole module from the cache. CPU seconds, the median of the repeats.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tessera.diagnostics import Source
from tessera.frontend.cache.module_cache import ModuleCache
from tessera.frontend.ptx.read_ptx import load_module
from tests.helpers.corpus import corpus_texts

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "cache.json"


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(sources: list[Source], cache: ModuleCache) -> tuple[float, float, float]:
    parse = index = whole = 0.0
    for source in sources:
        parse += seconds(lambda source=source: load_module(source))
        index += seconds(lambda source=source: cache.find(source))
        whole += seconds(lambda source=source: load_module(source, cache))
    return parse, index, whole


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--out", type=Path, default=RESULTS)
    arguments = options.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        cache = ModuleCache(Path(folder))
        sources = [Source(name, text) for name, text in corpus_texts()]
        for source in sources:
            load_module(source, cache)
        rounds = [measure(sources, cache) for _ in range(arguments.repeats)]
        stored = sum(path.stat().st_size for path in Path(folder).iterdir())
    parse, index, whole = (statistics.median(column) for column in zip(*rounds, strict=True))
    result = {
        "commit": commit,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "repeats": arguments.repeats,
        "files": len(sources),
        "text_bytes": sum(len(source.text) for source in sources),
        "cache_bytes": stored,
        "parse_cpu_s": round(parse, 3),
        "index_cpu_s": round(index, 3),
        "whole_cpu_s": round(whole, 3),
        "index_ratio": round(parse / index, 1),
        "whole_ratio": round(parse / whole, 2),
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
