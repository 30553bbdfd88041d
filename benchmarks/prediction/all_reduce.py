"""The model of sums over GPUs (all-reduce) against the measured rows of the extra `tables`.

    python -m benchmarks.prediction.all_reduce -o all_reduce.json

In: the extra `tables` (`aiconfigurator-core` and `pyarrow`), of which only the times of sums are
read. Out: JSON: for each kind and number of GPUs, what the model says over what was measured, by
bytes; for each link, the median of the ratio and the factor that nine of ten are within.
"""

from __future__ import annotations

from math import exp, log
from statistics import median

from benchmarks.common import arguments, machine, write
from tessera.frontend.machine.collectives import all_reduce_ns, host_link, modelled_all_reduce
from tessera.frontend.machine.gpu_table import find_gpu

GPUS = ("a100-80g-sxm", "h100-sxm", "h200", "b200", "b300", "gb200", "l40s",
        "rtx-pro-6000-blackwell-server")  # fmt: skip
COUNTS = (2, 4, 8)
SIZES = tuple(1 << n for n in range(11, 28))
"""Bytes: a token of a small model, to a prompt of 8,192 tokens of a large one."""


def main() -> None:
    """Compare all rows."""
    options = arguments(__doc__, "all_reduce.json").parse_args()
    rows = []
    for name in GPUS:
        gpu = find_gpu(name)
        link = host_link(gpu)
        for count in COUNTS:
            ratios = {}
            for size in SIZES:
                known = all_reduce_ns(gpu.key, count, size / 2)
                if known is not None:
                    said = modelled_all_reduce(gpu, link, count, size / 2)
                    ratios[size] = said.ns / known
            if ratios:
                rows.append({"gpu": name, "link": link.name, "count": count, "ratios": ratios})
    links = {}
    for link_name in ("nvlink", "pcie"):
        logs = sorted(
            log(ratio)
            for row in rows
            if row["link"] == link_name
            for ratio in row["ratios"].values()
        )
        if logs:
            sizes = sorted(map(abs, logs))
            links[link_name] = {
                "rows": len(logs),
                "median_ratio": exp(median(logs)),
                "nine_of_ten_within_factor": exp(sizes[int(0.9 * len(sizes))]),
                "all_within_factor": exp(sizes[-1]),
            }
    write({**machine(), "links": links, "rows": rows}, options.output)
    for link_name, figures in links.items():
        print(link_name, figures)


if __name__ == "__main__":
    main()
