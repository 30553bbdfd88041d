"""Read tables of measured kernel times.

In: a kind of GPU and kinds of work. Out: `TableRows`. The package has tables of A100 SXM and L40S
(`tessera/data/tables`, made by `tools/make_tables.py`). The package `aiconfigurator_core`, if it is
installed (the extra `tables`), has tables of more GPUs and of three libraries. If several kernels
were measured for the same sizes, the fastest counts, because a library would choose it. A table is
unusable if a time is not a number, or if a row appears twice for one kernel with very different
times.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from tessera.diagnostics import TesseraError
from tessera.ir.plan.tables import FIXED, LIBRARIES, SIZES, Fixed, Sizes, TableKind, TableRows

EXTRA = "tables"
INSTALL = f"pip install 'tessera-compiler[{EXTRA}]'"
_PACKAGED = Path(__file__).parents[2] / "data" / "tables"
_OTHER_PACKAGE = "aiconfigurator_core"
# The names of GPUs in the tables.
_SYSTEMS = {
    "a100-80g-sxm": "a100_sxm",
    "l40s": "l40s",
    "h100-sxm": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "rtx-pro-6000-blackwell-server": "rtx_pro_6000_server",
}
_FOLDERS = {
    TableKind.GEMM: ("gemm", "gemm_perf"),
    TableKind.CONTEXT: ("attention", "context_attention_perf"),
    TableKind.GENERATION: ("attention", "generation_attention_perf"),
    TableKind.MOE: ("moe", "moe_perf"),
}
_TYPES = ("bfloat16", "fp8", "fp8_block", "int4_wo", "w4a16_mxfp4")
# Requests choose experts unevenly: the more uneven of the laws that all tables have.
UNEVEN_LOADS = "power_law_1.2"
_OTHER_WORK = "nongated"  # in the name of kernels of experts with two products, not three
# The exceptions of numpy and zipfile for bytes that are not a whole archive.
_DAMAGED = (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error, RuntimeError)
_CONTRADICTION = 2.0  # ratio of two times of the same kernel and sizes
_LEAST_NS, _MOST_NS = 1.0, 3.6e12

Columns = Mapping[str, Sequence[object]]
AnyArray = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@cache
def bar_constants(name: str) -> Mapping[str, Sequence[float]]:
    """Constants of bars by what they are for (`planning.prices.libraries`, `.model_bars`)."""
    document = json.loads((_PACKAGED / f"{name}.json").read_text(encoding="utf-8"))
    bars: dict[str, list[float]] = document["bars"]
    return bars


def has_tables(gpu: str) -> bool:
    """Whether this package or the extra has tables of a kind of GPU."""
    return gpu in _SYSTEMS


def system_of(gpu: str) -> str | None:
    """The name of a kind of GPU in the tables; None if it was not measured."""
    return _SYSTEMS.get(gpu)


def extra_is_missing() -> bool:
    """Whether the package with more tables is not installed."""
    return find_spec(_OTHER_PACKAGE) is None or find_spec("pyarrow") is None


@cache
def read_tables(
    gpu: str,
    kind: TableKind,
    dtype: str = "bfloat16",
    library: str = LIBRARIES[0],
    loads: str = UNEVEN_LOADS,
) -> tuple[TableRows, ...]:
    """A library's tables of a kind of work on a GPU in a type; none if it was not measured.

    `loads` is how experts are loaded, by its name in the tables; the tables in this package have
    those of the default alone.
    """
    system = _SYSTEMS.get(gpu)
    if system is None:
        return ()
    is_usual = loads == UNEVEN_LOADS
    read = read_packaged(_PACKAGED, gpu, system, kind, library) if is_usual else ()
    versions = {rows.version for rows in read}
    for path in _other_files(system, kind, library):
        if path.parent.name not in versions:
            read += read_parquet(path, gpu, kind, dtype, library, loads)
    return tuple(rows for rows in read if rows.fixed[0] == dtype)


def _other_files(system: str, kind: TableKind, library: str) -> list[Path]:
    """The files of the other package, by version."""
    if extra_is_missing():
        return []
    spec = find_spec(_OTHER_PACKAGE)
    folder, stem = _FOLDERS[kind]
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    base = [Path(place, "systems", "data", system, folder, library) for place in places]
    return sorted(path for at in base for path in at.glob(f"*/{stem}.parquet"))


# --- the tables in this package ----------------------------------------------------------------


def read_packaged(
    folder: Path, gpu: str, system: str, kind: TableKind, library: str = LIBRARIES[0]
) -> tuple[TableRows, ...]:
    """The tables in files `SYSTEM.LIBRARY-VERSION.npz`."""
    read: list[TableRows] = []
    for path in sorted(folder.glob(f"{system}.{library}-*.npz")):
        version = path.name.removesuffix(".npz").partition("-")[2]
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                sizes, fixed, ns, names = (
                    arrays[f"{kind.value}.{part}"] for part in ("sizes", "fixed", "ns", "names")
                )
        except _DAMAGED as problem:
            raise _broken(path.name, f"it cannot be read: {problem}") from None
        except TypeError:  # the file is a single array, not an archive
            raise _broken(path.name, "it cannot be read: it is no archive of arrays") from None
        _check_arrays(path.name, kind, sizes, fixed, ns, names)
        if sizes.min() < 1:
            raise _broken(path.name, "its sizes are not whole")
        if not (np.isfinite(ns) & (ns >= _LEAST_NS) & (ns <= _MOST_NS)).all():
            raise _broken(path.name, "it has times that are no times")
        starts = np.flatnonzero(np.r_[True, (fixed[1:] != fixed[:-1]).any(axis=1)])
        types = sum(name.endswith("dtype") for name in FIXED[kind])
        for start, end in zip(starts, [*starts[1:], len(ns)], strict=True):
            exact = fixed[start].tolist()
            read.append(
                TableRows(
                    gpu=gpu,
                    library=library,
                    version=version,
                    kind=kind,
                    fixed=(*(str(names[code]) for code in exact[:types]), *exact[types:]),
                    sizes=tuple(map(tuple, sizes[start:end].tolist())),
                    ns=tuple(ns[start:end].tolist()),
                )
            )
    return tuple(read)


def _check_arrays(
    name: str, kind: TableKind, sizes: AnyArray, fixed: AnyArray, ns: AnyArray, names: AnyArray
) -> None:
    """Refuse arrays that this version of the package would not write."""
    rows, types = ns.size, sum(column.endswith("dtype") for column in FIXED[kind])
    asked = {
        "sizes": (sizes, "iu", (rows, len(SIZES[kind]))),
        "fixed": (fixed, "iu", (rows, len(FIXED[kind]))),
        "ns": (ns, "f", (rows,)),
        "names": (names, "U", (names.size,)),
    }
    for part, (array, letters, shape) in asked.items():
        if array.dtype.kind not in letters or array.shape != shape or not array.size:
            raise _broken(
                name,
                f"`{kind.value}.{part}` has shape {array.shape} and type {array.dtype}, not what "
                "this version of tessera writes",
            )
    codes = fixed[:, :types].astype(np.int64)
    if codes.min() < 0 or codes.max() >= len(names):
        raise _broken(name, f"`{kind.value}.fixed` has types without a name")


def packed(
    tables: Iterable[TableRows],
) -> dict[str, AnyArray]:
    """Tables of one GPU and version as arrays, for a file of this package."""
    arrays: dict[str, AnyArray] = {}
    by_kind: dict[TableKind, list[TableRows]] = {}
    for rows in tables:
        by_kind.setdefault(rows.kind, []).append(rows)
    for kind, many in by_kind.items():
        names = sorted({str(part) for rows in many for part in rows.fixed if isinstance(part, str)})
        fixed = [
            [names.index(part) if isinstance(part, str) else part for part in rows.fixed]
            for rows in many
            for _ in rows.ns
        ]
        arrays[f"{kind.value}.names"] = np.array(names)
        arrays[f"{kind.value}.fixed"] = np.array(fixed, dtype=np.int32)
        arrays[f"{kind.value}.sizes"] = np.array([s for r in many for s in r.sizes], dtype=np.int32)
        arrays[f"{kind.value}.ns"] = np.array([t for r in many for t in r.ns], dtype=np.float32)
    return arrays


# --- parquet -----------------------------------------------------------------------------------


def read_parquet(
    path: Path, gpu: str, kind: TableKind, dtype: str, library: str, loads: str = UNEVEN_LOADS
) -> tuple[TableRows, ...]:
    """The tables in a file as `aiconfigurator` writes it, of the version that its folder names."""
    import pyarrow.parquet

    try:
        wanted = [(_PARTS[kind][1][0][0], "==", dtype)]
        columns: Columns = pyarrow.parquet.read_table(path, filters=wanted).to_pydict()
    except (OSError, ValueError, pyarrow.ArrowException) as problem:
        raise _broken(str(path), f"it cannot be read: {problem}") from None
    return tables_of(columns, str(path), gpu, path.parent.name, kind, library, loads)


def tables_of(
    columns: Columns,
    name: str,
    gpu: str,
    version: str,
    kind: TableKind,
    library: str = LIBRARIES[0],
    loads: str = UNEVEN_LOADS,
) -> tuple[TableRows, ...]:
    """The tables in the columns of a file; rows of other versions and types are skipped."""
    parts = _PARTS[kind]
    needed = {column for column, _ in (*parts[0], *parts[1]) if column != "window_size"}
    needed |= {"version", "kernel_source", "latency"}
    if missing := sorted(needed - set(columns)):
        raise _broken(name, f"it lacks the columns {', '.join(missing)}")
    count = len(columns["latency"])
    window = columns.get("window_size", [0] * count)
    full: Columns = {**columns, "window_size": window}
    spread = columns.get("distribution", [loads] * count)
    sizes = zip(*(map(change, full[column]) for column, change in parts[0]), strict=True)
    fixed = zip(*(map(change, full[column]) for column, change in parts[1]), strict=True)
    measured = zip(
        sizes, fixed, map(str, columns["kernel_source"]), columns["latency"], strict=True
    )
    rows = (
        (row_sizes, row_fixed, kernel, 1e6 * _number(latency))
        for (row_sizes, row_fixed, kernel, latency), row_version, law in zip(
            measured, columns["version"], spread, strict=True
        )
        if row_version == version
        and law == loads
        and row_fixed[0] in _TYPES
        and _OTHER_WORK not in kernel
    )
    return tuple(_sorted_rows(rows, name, gpu, version, kind, library))


Change = Callable[[object], str | int]


def _text(value: object) -> str | int:
    return str(value)


def _integer(value: object) -> int:
    return int(value) if isinstance(value, int) else -1


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _step_and_itself(value: object) -> str | int:
    return _integer(value) + 1


_HEADS = (("num_heads", _integer), ("num_key_value_heads", _integer))
_ATTENTION = (
    ("attn_dtype", _text),
    ("kv_cache_dtype", _text),
    ("head_dim", _integer),
    ("window_size", _integer),
)
_PARTS: dict[TableKind, tuple[tuple[tuple[str, Change], ...], tuple[tuple[str, Change], ...]]] = {
    TableKind.GEMM: (
        (("m", _integer), ("n", _integer), ("k", _integer)),
        (("gemm_dtype", _text),),
    ),
    TableKind.CONTEXT: (
        (("batch_size", _integer), ("isl", _integer), *_HEADS),
        _ATTENTION,
    ),
    TableKind.GENERATION: (
        (("batch_size", _integer), ("step", _step_and_itself), *_HEADS),
        _ATTENTION,
    ),
    TableKind.MOE: (
        (("num_tokens", _integer), ("moe_tp_size", _integer), ("moe_ep_size", _integer)),
        (
            ("moe_dtype", _text),
            ("hidden_size", _integer),
            ("inter_size", _integer),
            ("topk", _integer),
            ("num_experts", _integer),
        ),
    ),
}


# --- rows --------------------------------------------------------------------------------------


def _sorted_rows(
    rows: Iterable[tuple[Sizes, Fixed, str, float]],
    name: str,
    gpu: str,
    version: str,
    kind: TableKind,
    library: str,
) -> list[TableRows]:
    """Rows grouped by their fixed values, each size once; refuses contradictory rows."""
    by_kernel: dict[tuple[Fixed, Sizes, str], list[float]] = {}
    for sizes, fixed, kernel, ns in rows:
        if not isfinite(ns) or not _LEAST_NS <= ns <= _MOST_NS:
            raise _broken(name, f"the time of {_listed(kind, sizes)} is {ns:.6g} ns")
        if min(sizes) < 1:
            raise _broken(name, f"a size of {_listed(kind, sizes)} is below 1")
        by_kernel.setdefault((fixed, sizes, kernel), []).append(ns)
    best: dict[Fixed, dict[Sizes, float]] = {}
    for (fixed, sizes, _), times in by_kernel.items():
        if max(times) > _CONTRADICTION * min(times):
            said = f"times from {min(times):.0f} to {max(times):.0f} ns"
            raise _broken(name, f"{_listed(kind, sizes)} has {said}")
        ns = sorted(times)[len(times) // 2]
        table = best.setdefault(fixed, {})
        table[sizes] = min(ns, table.get(sizes, ns))
    return [
        TableRows(
            gpu=gpu,
            library=library,
            version=version,
            kind=kind,
            fixed=fixed,
            sizes=tuple(sorted(table)),
            ns=tuple(table[sizes] for sizes in sorted(table)),
        )
        for fixed, table in sorted(best.items(), key=lambda item: tuple(map(str, item[0])))
    ]


def _listed(kind: TableKind, sizes: Sizes) -> str:
    listed = (f"{n}={s}" for n, s in zip(SIZES[kind], sizes, strict=False))
    return f"{kind.value} {' '.join(listed)}"


def _broken(name: str, why: str) -> TesseraError:
    return TesseraError.of(
        "TSR3015",
        f"the table of kernel times `{name}` cannot be used: {why}",
        hint="`--no-tables` plans without tables; installing the package again mends its files",
    )
