"""What `tessc selftest` shows at the end: each part, the links, and predicted beside measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tessera.driver.selftest.document import SelftestDocument
from tessera.driver.selftest.options import SelftestPart
from tessera.report.diagnostics import safe
from tessera.report.table import Column, Fit, fitted, right, table

_PARTS = (Column("part"), Column("result"), Column("seconds", right=True), Column("", Fit.WRAP))
_LINKS = (Column("from"), Column("to"), *right("us", "GB/s", "assumed GB/s"))
_EXCHANGES = (Column("from"), Column("to"), *right("bytes", "us", "p90", "p99", "times"))
_PLANS = (
    Column("model"),
    Column("plan"),
    *right("predicted/s", "range", "measured/s", "off", "predicted us", "measured us", "off"),
)
_MOST_PROBLEMS = 5
_MOST_LINKS = 12


def selftest_text(document: SelftestDocument, width: int | None = None) -> str:
    """The report of a self-test."""
    lines = table(_PARTS, _part_rows(document), width)
    problems = [
        f"{name}: {problem}" for name, part in document.parts.items() for problem in part.problems
    ]
    for problem in problems[:_MOST_PROBLEMS]:
        lines.append(f"  problem in {safe(problem)}")
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"  and {len(problems) - _MOST_PROBLEMS} more problems, which the file has")
    links = document.rows["links"]
    if links:
        lines += ["", "links, one way", *table(_LINKS, map(_link_row, links[:_MOST_LINKS]), width)]
        if len(links) > _MOST_LINKS:
            lines.append(f"  and {len(links) - _MOST_LINKS} more, which the file has")
    exchanges = sorted(document.rows["exchanges"], key=lambda row: _number(row["bytes"]))
    if exchanges:
        head = "exchanges: from the end of a step to the start of the one that waits for its bytes"
        shown = exchanges[:_MOST_LINKS]
        lines += ["", head, *table(_EXCHANGES, map(_exchange_row, shown), width)]
        if len(exchanges) > _MOST_LINKS:
            lines.append(f"  and {len(exchanges) - _MOST_LINKS} more, which the file has")
    measured = [row for row in document.rows["plans"] if "measured" in row]
    if measured:
        head = "requests per second and loaded latency; the range is that of nine in ten draws"
        lines += ["", head, *table(_PLANS, map(_plan_row, measured), width)]
    said = "\n".join(lines) + f"\n\n{_last(document)}\nwrote {safe(document.path)}\n"
    return fitted(said, width)


def _part_rows(document: SelftestDocument) -> Iterator[tuple[str, str, str, str]]:
    for name, part in document.parts.items():
        yield name, part.status, f"{part.seconds:.1f}", _said(document, SelftestPart(name))


def _said(document: SelftestDocument, part: SelftestPart) -> str:
    rows = document.rows
    match part:
        case SelftestPart.LINKS:
            return (
                f"{len(rows['links'])} links, {len(rows['copies'])} sizes of copies, "
                f"{len(rows['exchanges'])} of exchanges"
            )
        case SelftestPart.PROFILE:
            return f"{', '.join(document.profiles) or 'nothing'} measured"
        case SelftestPart.BYTES:
            equal = [row for row in rows["placements"] if "problem" not in row]
            count = sum(_number(row.get("bytes")) for row in equal)
            return (
                f"{len(equal)} of {len(rows['placements'])} random placements equal one device, "
                f"{count:.0f} bytes"
            )
        case SelftestPart.PLANS:
            tried = [row for row in rows["plans"] if "measured" in row]
            within = sum(map(is_within, tried))
            return f"{within} of {len(tried)} measured rates within the range predicted"


def is_within(row: Mapping[str, object]) -> bool:
    """Whether the measured rate of a plan is within its predicted range."""
    low, high = _pair(_inner(row, "predicted").get("requests_per_s_range"))
    return low <= _number(_inner(row, "measured").get("requests_per_s")) <= high


def _link_row(row: Mapping[str, object]) -> tuple[str, ...]:
    return (
        str(row["source"]),
        str(row["target"]),
        f"{_number(row['latency_ns']) / 1e3:.1f}",
        _gb(row.get("bytes_per_second")),
        _gb(row.get("assumed_bytes_per_second")),
    )


def _exchange_row(row: Mapping[str, object]) -> tuple[str, ...]:
    times = (f"{_number(row[key]) / 1e3:.1f}" for key in ("ns", "p90_ns", "p99_ns"))
    return str(row["source"]), str(row["target"]), str(row["bytes"]), *times, str(row["count"])


def _plan_row(row: Mapping[str, object]) -> tuple[str, ...]:
    predicted, measured = _inner(row, "predicted"), _inner(row, "measured")
    low, high = _pair(predicted.get("requests_per_s_range"))
    rates = [_number(each.get("requests_per_s")) for each in (predicted, measured)]
    waits = [_number(each.get("latency_loaded_ns")) for each in (predicted, measured)]
    return (
        str(row["model"]),
        str(row["label"]),
        f"{rates[0]:.1f}",
        f"{low:.1f} to {high:.1f}",
        f"{rates[1]:.1f}",
        _off(rates) + ("" if is_within(row) else " *"),
        f"{waits[0] / 1e3:.1f}",
        f"{waits[1] / 1e3:.1f}",
        _off(waits),
    )


def _last(document: SelftestDocument) -> str:
    missing = document.missing()
    if any(part.problems for part in document.parts.values()):
        said = "there are problems"
    else:
        said = "everything that was tried passed"
    if any(not is_within(row) for row in document.rows["plans"] if "measured" in row):
        said += "; * is outside the range predicted"
    if missing:
        said += f"; not done: {', '.join(missing)} (the same command goes on)"
    return said


def _inner(row: Mapping[str, object], key: str) -> Mapping[str, object]:
    inner = row.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _pair(value: object) -> tuple[float, float]:
    low, high = value if isinstance(value, list | tuple) and len(value) == 2 else (0.0, 0.0)
    return _number(low), _number(high)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _gb(value: object) -> str:
    return "-" if value is None else f"{_number(value) / 1e9:.2f}"


def _off(pair: list[float]) -> str:
    return f"{pair[1] / pair[0] - 1:+.1%}" if pair[0] else "-"
