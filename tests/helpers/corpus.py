"""The PTX texts that tests and benchmarks read: hand-written ones and the packed corpus.

The corpus is an archive; `extracted` unpacks it once into a folder named by its digest, and
checks the files against the manifest inside.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "benchmarks" / "corpus" / "corpus.tar.xz"
HANDWRITTEN = ROOT / "tests" / "data" / "ptx" / "handwritten"


def handwritten_texts() -> Iterator[tuple[str, str]]:
    """Name and text of each hand-written file; line ends are kept as they are."""
    for path in sorted(HANDWRITTEN.glob("*.ptx")):
        yield path.name, path.read_bytes().decode()


def corpus_names(largest: int | None = None) -> list[str]:
    """The files of the corpus, up to a size in bytes; nothing is unpacked for this."""
    entries = manifest(ARCHIVE.parent)
    return [entry["file"] for entry in entries if largest is None or entry["bytes"] <= largest]


def corpus_text(name: str) -> str:
    """One file of the corpus."""
    return (extracted() / name).read_bytes().decode()


def corpus_texts(largest: int | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of each file of the corpus, in the order of the manifest."""
    folder = extracted()
    for name in corpus_names(largest):
        yield name, (folder / name).read_bytes().decode()


def manifest(folder: Path) -> list[dict[str, Any]]:
    """The entries of a corpus folder's manifest."""
    entries: list[dict[str, Any]] = json.loads((folder / "manifest.json").read_text())["files"]
    return entries


@functools.cache
def extracted() -> Path:
    """The folder of the unpacked corpus, unpacking it if this is the first use."""
    digest = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"tessera-corpus-{os.getuid()}-{digest}"
    if not folder.exists():
        scratch = Path(tempfile.mkdtemp())
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(scratch, filter="data")
        check(scratch)
        _publish(scratch, folder)
    return folder


def check(folder: Path) -> None:
    """Refuse a corpus whose files are not those of its manifest."""
    for entry in manifest(folder):
        found = hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest()
        if found != entry["sha256"]:
            raise ValueError(f"{entry['file']} is not the file of the manifest")


def _publish(scratch: Path, folder: Path) -> None:
    """Give the folder its name in one step; another process may have done so first."""
    try:
        scratch.rename(folder)
    except OSError:
        shutil.rmtree(scratch)
        if not folder.exists():
            raise
