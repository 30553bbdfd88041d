"""What it costs to start: processor time of small commands, against importing the libraries.

    python -m benchmarks.reading.startup [--repeats N] [-o FILE]

Each command runs in a process of its own: once to warm bytecode and files, then N times, in turns
with the others, so that a busy machine hurts all alike. Kept is the median of user and system time,
and how much it is above `python -c 'import numpy, lark, click'`. Traces are also analysed without
the cache. Prints a table, writes JSON.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import ROOT, arguments, machine, write

PLAIN = ROOT / "tests" / "data" / "ptx" / "handwritten" / "conversions.ptx"
TRACE = ROOT / "examples" / "traces" / "mlp.ptx"
# The smallest launch there is: what is left is the start.
TINY = """//! tessera.trace 1
//! buffer x bytes=256 role=state
//! module m0
.version 8.0
.target sm_80
.address_size 64
.visible .entry put(.param .u64 x)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    st.global.u32 [%rd1+16], 7;
    ret;
}
//! launch m0.put grid=1,1,1 block=1,1,1 args=[x]
"""
BASELINE = "import numpy, lark, click"


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured; the first is what the others are held against."""
    tiny = folder / "tiny.ptx"
    tiny.write_text(TINY, encoding="utf-8")
    tessc = [sys.executable, "-m", "tessera"]
    return {
        BASELINE: [sys.executable, "-c", BASELINE],
        "tessc --help": [*tessc, "--help"],
        "tessc plan --help": [*tessc, "plan", "--help"],
        "tessc analyze, plain PTX": [*tessc, "analyze", str(PLAIN)],
        "tessc analyze, trace of one launch": [*tessc, "analyze", str(tiny)],
        "tessc analyze, trace of eight steps": [*tessc, "analyze", str(TRACE)],
    }


def processor_seconds(command: list[str], folder: Path, *, cache: bool) -> float:
    """User and system time of one run."""
    environment = {name: value for name, value in os.environ.items() if name[:8] != "TESSERA_"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    environment["PYTHONPATH"] = str(ROOT)
    environment["TESSERA_CACHE_DIR"] = str(folder / "cache")
    if not cache:
        environment["TESSERA_NO_CACHE"] = "1"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(folder: Path, repeats: int) -> dict[str, float]:
    """The median of each command, without the cache where it makes a difference."""
    runs = [(name, command, True) for name, command in commands(folder).items()]
    runs += [(f"{n}, no cache", command, False) for n, command, _ in runs if "analyze" in n]
    times: dict[str, list[float]] = {name: [] for name, _, _ in runs}
    for turn in range(repeats + 1):
        for name, command, cache in runs:
            seconds = processor_seconds(command, folder, cache=cache)
            if turn:
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = arguments(__doc__, "startup.json")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        medians = measure(Path(folder), options.repeats)
    baseline = medians[BASELINE]
    for name, seconds in medians.items():
        print(f"{seconds:7.3f} s  {seconds - baseline:+7.3f} s  {name}")
    result = {
        **machine(),
        "repeats": options.repeats,
        "baseline": {"command": f"python -c '{BASELINE}'", "seconds": round(baseline, 3)},
        "commands": {
            name: {"seconds": round(seconds, 3), "above_baseline": round(seconds - baseline, 3)}
            for name, seconds in medians.items()
            if name != BASELINE
        },
    }
    write(result, options.output)


if __name__ == "__main__":
    main()
