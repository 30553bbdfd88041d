"""The paper's figure 8: clusters of 2 to 16 GPUs, half of one kind and half of another.

    python -m benchmarks.paper.clusters [-o FILE] [--only NAME]

In: steps of `examples/large`, tables. Out: a JSON file with a row per cluster: the answer of
`tessc fleet --json`, and what it sets beside it (forms of use that people have today). A run goes
on where the last one ended; 70B on 16 GPUs takes minutes.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

from benchmarks.common import LARGE, TESSC, arguments, kept, machine, write

PAIRS = ("a100,l40s", "h100,rtx-pro-6000", "b200,h100")
SIZES = {"llama-8b": (1, 2, 4, 8), "llama-70b": (4, 8)}
BATCHES = {"llama-8b": ("decode-b64", "decode-b256"), "llama-70b": ("decode-b8", "decode-b64")}
TOKENS = "1024:256"


def clusters() -> Iterator[tuple[str, list[str]]]:
    """Names, and the arguments of `tessc fleet`; the cheap ones first."""
    for model, sizes in SIZES.items():
        steps = [*BATCHES[model], "prefill-1024"]
        traces = [str(LARGE / f"{model}-{step}.ptx") for step in steps]
        for pair in PAIRS:
            for count in sizes:
                gpus = ",".join(f"{count}x{gpu}" for gpu in pair.split(","))
                words = ["--gpus", gpus, "--tokens", TOKENS, "--library", "vllm", "--json"]
                yield f"{model} {gpus}", [*traces, *words]


def run(words: list[str]) -> dict[str, object]:
    """The figures of one answer."""
    begun = time.perf_counter()
    done = subprocess.run([*TESSC, "fleet", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"refused": done.stderr.splitlines()[0]}
    report = json.loads(done.stdout)
    kept = ("requests_per_s", "usd_per_hour", "bar_requests_per_s", "against", "units", "why")
    answer = report["answer"]
    rows = {row["name"]: {k: row.get(k) for k in kept} for row in (answer, *report["beside"])}
    return {
        "verdict": answer["verdict"],
        "rows": rows,
        "kinds": {kind["name"]: kind["sources"] for kind in report["kinds"]},
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main() -> None:
    """Make what is missing."""
    parser = arguments(__doc__, "paper_clusters.json")
    parser.add_argument("--only", default="", help="clusters whose names have this in them")
    given = parser.parse_args()
    known = kept(given.output).get("clusters", {})
    data = {**machine(), "tokens": TOKENS, "clusters": known}
    for name, words in clusters():
        if given.only in name and name not in data["clusters"]:
            data["clusters"][name] = run(words)
            print(name, data["clusters"][name].get("seconds"), flush=True)
            write(data, given.output)


if __name__ == "__main__":
    main()
