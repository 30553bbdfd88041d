"""How fast a transformer trace is analysed: cold, warm, and with many launches.

    python -m benchmarks.analysis.analyze [--quick] [-o FILE]

- cold and warm: one layer of 40 kernels (`transformer_trace`), against `ptxas -O3` of the same
  modules. Cold has no cache; warm is the second time with one. Each in a process of its own,
  `tessc analyze` from start to end, interpreter and imports included.
- scale: 5,000, 10,000 and 20,000 launches of these kernels, with peak memory; the time per launch
  is that of what the launches add to the one layer that finds out about the kernels.

Everything is CPU time, for the machine may be shared. Nothing is asserted here; tests are.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.analysis.transformer_trace import USES, module_texts, trace_text
from benchmarks.common import ROOT, arguments, machine, write
from tests.helpers.ptxas import find_ptxas

LAYERS = (125, 250, 500)
_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)


def spent(command: list[str], environment: dict[str, str], folder: Path) -> tuple[float, int]:
    """CPU seconds and peak kilobytes of a command."""
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(errors)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def analyze(trace: Path, cache: Path | None) -> tuple[float, int]:
    """What `tessc analyze` takes."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    if cache is None:
        environment["TESSERA_NO_CACHE"] = "1"
    else:
        environment["TESSERA_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-m", "tessera", "analyze", str(trace)]
    return spent(command, environment, trace.parent)


def ptxas_seconds(folder: Path) -> float | None:
    """What `ptxas -O3` takes for all modules."""
    ptxas = find_ptxas()
    if ptxas is None:
        return None
    total = 0.0
    for number, text in enumerate(module_texts()):
        path = folder / f"m{number}.ptx"
        path.write_text(text)
        target = _TARGET.search(text)
        assert target is not None
        command = [str(ptxas), "-O3", f"-arch={target[1]}", str(path), "-o", os.devnull]
        total += spent(command, dict(os.environ), folder)[0]
    return total


def one_layer(folder: Path) -> dict[str, Any]:
    """Cold and warm, against ptxas."""
    trace = folder / "layer.ptx"
    trace.write_text(trace_text(1))
    cache = folder / "cache"
    ptxas = ptxas_seconds(folder)
    cold, memory = analyze(trace, None)
    filling, _ = analyze(trace, cache)
    warm, _ = analyze(trace, cache)
    return {
        "kernels": len(USES),
        "ptx_bytes": sum(map(len, module_texts())),
        "ptxas_s": ptxas and round(ptxas, 2),
        "cold_s": round(cold, 2),
        "cold_over_ptxas": ptxas and round(cold / ptxas, 2),
        "cold_with_cache_s": round(filling, 2),
        "warm_s": round(warm, 2),
        "warm_over_cold": round(warm / cold, 3),
        "cold_peak_mb": memory // 1024,
    }


def many_layers(folder: Path, layers: tuple[int, ...], first: float) -> list[dict[str, Any]]:
    """Growth with the number of launches."""
    rows: list[dict[str, Any]] = []
    for count in layers:
        trace = folder / "long.ptx"
        trace.write_text(trace_text(count))
        seconds, memory = analyze(trace, None)
        launches = count * len(USES)
        added = seconds - first
        rows.append(
            {
                "launches": launches,
                "seconds": round(seconds, 2),
                "ms_per_launch": round(1000 * added / (launches - len(USES)), 3),
                "peak_mb": memory // 1024,
                "over_half": round(seconds / rows[-1]["seconds"], 2) if rows else None,
                "added_over_half": round(added / (rows[-1]["seconds"] - first), 2)
                if rows
                else None,
            }
        )
    return rows


def main() -> None:
    parser = arguments(__doc__, "analyze.json")
    parser.add_argument("--quick", action="store_true", help="10, 20 and 40 layers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        layer = one_layer(Path(name))
        layers = (10, 20, 40) if options.quick else LAYERS
        scale = many_layers(Path(name), layers, layer["cold_s"])
    result = {
        **machine(),
        "one_layer": layer,
        "scale": scale,
        "peak_mb_of_children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }
    write(result, options.output)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
