"""Makes oracle cases: generates kernels, runs them on the host, compiles them to PTX.

    python -m tests.oracle.record                      # the recorded set, in tests/data/oracle
    python -m tests.oracle.record --random 1500 --seed 100000 -o FILE
    python -m tests.oracle.record --tightness          # how tight the regions are there

The first two need g++, NVRTC, nvcc and clang, and nothing of Tessera; the same seed and compilers
give the same bytes. The third needs Tessera only; read the diff of what it writes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.oracle import families_code, families_pointers, forms, random_programs
from tests.oracle.compilers import WAYS, compile_ptx, missing, no_host_compiler
from tests.oracle.host import Host, Refused
from tests.oracle.recorded import DATA, RECORDED, Case, read, write
from tests.oracle.subset import Run, Source

TIGHTNESS = DATA / "tightness.json"
RANDOM_RECORDED = 260
BATCH = 200
# Beside NVRTC, in turns. `nvcc -G` puts the folder it works in into its output.
TURNS = ("nvrtc-G", "clang", "nvcc", "nvrtc-G", "clang-O0")


def fits(source: Source, way: str) -> bool:
    """Whether a way to compile keeps what the text means.

    clang 14 keeps what a thread loaded from a shared variable over a barrier.
    """
    return not (way.startswith("clang") and "SHARED" in source.code)


def logged(sources: Sequence[Source]) -> Iterator[tuple[Source, tuple[Run, ...]]]:
    """Sources that are cases, with their runs; in batches, each its own library."""
    for first in range(0, len(sources), BATCH):
        batch = sources[first : first + BATCH]
        with tempfile.TemporaryDirectory() as folder:
            host = Host(batch, Path(folder))
            for number, source in enumerate(batch):
                try:
                    yield source, host.runs(number)
                except Refused as why:
                    if source.family != "random":
                        raise RuntimeError(f"{source.name}: {why}") from why


def recorded_cases() -> Iterator[Case]:
    """The recorded set: every family, by NVRTC and one or two other ways."""
    families = [*forms.sources(), *families_pointers.sources(), *families_code.sources()]
    turn = 0
    for source, runs in logged([*families, *random_programs.sources(RANDOM_RECORDED)]):
        yield Case(source, "nvrtc", compile_ptx(source.code, "nvrtc"), runs)
        turn += 1
        few = source.family in ("forms", "random", "integer", "float")
        if few and turn % 3:
            continue
        way = TURNS[turn % len(TURNS)]
        if fits(source, way):
            yield Case(source, way, compile_ptx(source.code, way), runs)


def random_cases(count: int, seed: int, ways: Sequence[str] = ()) -> Iterator[Case]:
    """Random programs from a seed on, compiled in turns, until there are so many cases."""
    used = ways or ("nvrtc", "nvrtc-G", "nvrtc", "clang", "nvrtc", "clang-O0")
    made = 0
    while made < count:
        for source, runs in logged(random_programs.sources(BATCH, seed)):
            way = used[made % len(used)]
            if not fits(source, way):
                way = "nvrtc"
            yield Case(source, way, compile_ptx(source.code, way), runs)
            made += 1
            if made == count:
                return
        seed += BATCH


def measured() -> dict[str, list[int]]:
    """Cases whose regions are wider than what the host touched: the fields of `Tightness`."""
    from tests.oracle.check import analysed, tightness

    found = {}
    for case in read():
        _, stated, pinned = analysed(case)
        tight = tightness(case, stated, pinned)
        if not tight.exact:
            found[case.id] = tight.values()
    return found


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.oracle.record")
    parser.add_argument("--random", type=int, help="so many random kernels instead")
    parser.add_argument("--seed", type=int, default=100_000, help="where their seeds start")
    parser.add_argument("-o", type=Path, default=RECORDED, help="the file to write")
    parser.add_argument("--tightness", action="store_true", help="measure the recorded set")
    options = parser.parse_args()
    if options.tightness:
        lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(measured().items())]
        TIGHTNESS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return
    reasons = [no_host_compiler(), *(missing(way) for way in WAYS)]
    if any(reasons):
        raise SystemExit("error: " + "; ".join(sorted({r for r in reasons if r})))
    if options.random and options.o == RECORDED:
        raise SystemExit("error: name the file for random kernels with -o")
    cases = list(random_cases(options.random, options.seed) if options.random else recorded_cases())
    write(options.o, cases)
    sys.stdout.write(f"{len(cases)} cases, {options.o.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
