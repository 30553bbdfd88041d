"""Build `corpus/functions.tar.xz`: every group of device functions through eight versions of NVRTC.

    python -m benchmarks.reading.corpus_functions [--work DIR] [--pack]

Needs ptxas, a CUDA 13.0 toolkit for the headers, and a package index; no GPU. The sources are those
of `corpus/sources/device_functions.py`, each for one architecture of each version, from sm_35 to
sm_120a. ptxas must accept every file: `TESSERA_PTXAS` names the assemblers that are asked, for the
newest version ptxas 13.4. What is refused is reported and left out.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reading.corpus_build import OWN, SOURCES, Producer, Work, check_files, nvrtc, pack

HERE = Path(__file__).resolve().parents[1]
ARCHIVE = HERE / "corpus" / "functions.tar.xz"
OLD_NVRTC, NVRTC = "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"
OLD_HEADERS = "nvidia-cuda-runtime-cu12"
VERSIONS = (
    (
        "11.8.89",
        "nvidia-cuda-nvrtc-cu11",
        "nvidia-cuda-runtime-cu11==11.8.89",
        "35,37,50,52,53,60,61,70,72,75,80",
    ),
    ("12.3.107", OLD_NVRTC, f"{OLD_HEADERS}==12.3.101", "50,52,60,61,70,75,80,87,90"),
    ("12.4.127", OLD_NVRTC, f"{OLD_HEADERS}==12.3.101", "86,61,80,52,90,70,72,50"),
    ("12.6.85", OLD_NVRTC, f"{OLD_HEADERS}==12.6.77", "90,80,75,70,62,53,50"),
    ("12.8.93", OLD_NVRTC, f"{OLD_HEADERS}==12.9.79", "100,120a,90a,89,75,60"),
    ("13.0.88", NVRTC, None, "75,80,86,89,90,100,120"),
    ("13.1.115", NVRTC, None, "86,120,100f,87,75,90,121"),
    ("13.4.92", NVRTC, None, "90a,80,100a,120a,89,103a,110,88"),
)
PRODUCERS = tuple(
    Producer(
        f"nvrtc-{version}",
        version,
        OWN,
        nvrtc(f"{wheel}=={version}", headers, archs, "functions"),
    )
    for version, wheel, headers, archs in VERSIONS
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build everything and pack what ptxas accepts; with `--pack`, only the latter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("/tmp/tessera-corpus"))
    parser.add_argument("--pack", action="store_true", help="check and pack what is built")
    options = parser.parse_args(arguments)
    work = Work(options.work)
    shutil.copytree(SOURCES, work.sources, dirs_exist_ok=True)
    if not options.pack:
        for producer in PRODUCERS:
            print(f"building {producer.name}", flush=True)
            producer.build(work, work.out(producer.name))
    entries = check_files(work, PRODUCERS)
    pack(work, entries, ARCHIVE)
    print(f"{len(entries)} files, {sum(int(str(entry['bytes'])) for entry in entries)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
