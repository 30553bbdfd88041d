"""Read valid PTX files of many producers and report every one that Tessera refuses.

    python -m benchmarks.reading.accept [DIR | ARCHIVE ...] [-o FILE] [--refused FILE] [--limit N]

Each folder or `.tar` archive holds a subfolder a producer, with files that some ptxas accepts; a
`manifest.json` or `PRODUCER.jsonl` beside them says which ptxas judged each. With none given, the
packed corpora are read. A file is read by the library call, as `tessera.load` does; warnings are
counted and do not refuse. The exit code says whether any file was refused.
"""

from __future__ import annotations

import json
import re
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, write
from tessera.diagnostics import Source, TesseraError, summarise
from tessera.frontend.ptx.read_ptx import load_module
from tests.helpers.corpus import ARCHIVE

FUNCTIONS = ARCHIVE.with_name("functions.tar.xz")
TARGET = re.compile(r"\.target\s+(sm_\w+)")
VERSION = re.compile(r"\.version\s+(\d+\.\d+)")


@dataclass(slots=True)
class Tally:
    """What happened to the files of one producer."""

    files: int = 0
    size: int = 0
    refused: int = 0
    warned: int = 0
    targets: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """The tally as plain data."""
        return {
            "files": self.files,
            "bytes": self.size,
            "refused": self.refused,
            "with warnings": self.warned,
            "targets": dict(sorted(self.targets.items())),
            "versions": dict(sorted(self.versions.items())),
        }


def read_texts(place: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every PTX file of a folder or an archive."""
    if place.is_dir():
        for path in sorted(place.rglob("*.ptx")):
            yield path.relative_to(place).as_posix(), path.read_bytes()
        return
    with tarfile.open(place) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".ptx") else None
            if content is not None:
                yield member.name, content.read()


def read_judges(place: Path) -> Counter[str]:
    """How many files each ptxas judged, where a manifest says so."""
    judges: Counter[str] = Counter()
    for path in sorted(place.glob("*.jsonl")) if place.is_dir() else []:
        for line in path.read_text().splitlines():
            judges[json.loads(line)["judge"]] += 1
    return judges


def look(name: str, content: bytes) -> tuple[str | None, int]:
    """Why a file is refused, if it is, and how many warnings it has; a crash refuses too."""
    text = content.decode("utf-8", "surrogateescape")
    try:
        _, warnings = load_module(Source(name, text))
    except TesseraError as failure:
        return (summarise(failure.diagnostics[0]) if failure.diagnostics else "no reason"), 0
    except Exception as crash:
        return f"crash: {type(crash).__name__}: {crash}"[:300], 0
    return None, len(warnings)


def run(places: Sequence[Path], limit: int | None) -> tuple[dict[str, Tally], list[dict[str, str]]]:
    """Read everything; the tally of each producer, and what was refused."""
    producers: dict[str, Tally] = {}
    refused = []
    for place in places:
        for name, content in read_texts(place):
            producer = name.split("/")[0]
            tally = producers.setdefault(producer, Tally())
            if limit is not None and tally.files >= limit:
                continue
            reason, warnings = look(name, content)
            text = content.decode("utf-8", "surrogateescape")
            tally.files += 1
            tally.size += len(content)
            tally.warned += warnings > 0
            tally.targets.update(found[1] for found in [TARGET.search(text)] if found)
            tally.versions.update(found[1] for found in [VERSION.search(text)] if found)
            if reason is not None:
                tally.refused += 1
                refused.append({"file": name, "reason": reason})
                print(reason, flush=True)
    return producers, refused


def main(words: Sequence[str] | None = None) -> int:
    """Read the files and write the report."""
    parser = arguments(__doc__)
    parser.add_argument("places", type=Path, nargs="*", help="folders or archives of valid files")
    parser.add_argument("--manifests", type=Path, help="a folder of PRODUCER.jsonl: who judged")
    parser.add_argument("--limit", type=int, help="at most this many files of each producer")
    options = parser.parse_args(words)
    started = time.monotonic()
    producers, refused = run(options.places or [ARCHIVE, FUNCTIONS], options.limit)
    files = sum(tally.files for tally in producers.values())
    report = {
        "files": files,
        "producers": {name: producers[name].to_json() for name in sorted(producers)},
        "judges": dict(read_judges(options.manifests)) if options.manifests else {},
        "refused": refused,
    }
    write(report, options.output)
    seconds = time.monotonic() - started
    print(f"{files} files of {len(producers)} producers, {len(refused)} refused, {seconds:.0f} s")
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
