"""Make the tables of measured kernel times in `tessera/data/tables` from their sources.

    python tools/make_tables.py FOLDER

FOLDER has the files `SYSTEM.KIND_perf.vllm-VERSION.parquet` from the data of aiconfigurator
(Apache-2.0). Needs pyarrow. Writes a `.npz` per system and version, and `SOURCES.json` with the
SHA-256 digests of what it read and wrote.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet

from tessera.frontend.machine.tables import packed, tables_of
from tessera.ir.plan.tables import TableKind, TableRows

TARGET = Path(__file__).parents[1] / "tessera" / "data" / "tables"
NAME = re.compile(r"([a-z0-9_]+)\.([a-z_]+)_perf\.vllm-([0-9.]+)\.parquet")
KINDS = {
    "gemm": TableKind.GEMM,
    "context_attention": TableKind.CONTEXT,
    "generation_attention": TableKind.GENERATION,
    "moe": TableKind.MOE,
}


def digest(path: Path) -> str:
    """The SHA-256 digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(folder: Path) -> None:
    """Read all tables in a folder, and write ours."""
    read: dict[tuple[str, str], list[TableRows]] = {}
    sources: dict[str, str] = {}
    for path in sorted(folder.glob("*.parquet")):
        if (matched := NAME.fullmatch(path.name)) is None:
            continue
        system, kind, version = matched.groups()
        columns = pyarrow.parquet.read_table(path).to_pydict()
        tables = tables_of(columns, path.name, system, version, KINDS[kind])
        read.setdefault((system, version), []).extend(tables)
        sources[path.name] = digest(path)
    made: dict[str, str] = {}
    for (system, version), tables in read.items():
        target = TARGET / f"{system}.vllm-{version}.npz"
        np.savez_compressed(target, **packed(tables))
        made[target.name] = digest(target)
    listed = {"licence": "Apache-2.0", "from": "aiconfigurator", "read": sources, "made": made}
    (TARGET / "SOURCES.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
