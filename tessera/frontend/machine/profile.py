"""Read a profile: measured times of the steps of a trace, as JSON.

    {"schema": "tessera-profile/1", "program": "DIGEST", "rows": [
      {"step": 3, "name": "m0.linear", "gpu": "a100", "sms": 108, "ns": 8123.0, "error": 0.02}]}

In: text. Out: a `Profile`. `program` is the digest of the trace in plans of it; `gpu` is a name
of the table; `sms` may be left out for a whole card. Times are above zero and at most an hour, so
that sums and ratios of them stay numbers. Rows may say more (`warm_ns`, `cold_ns`,
`beside_compute_ns`, `beside_memory_ns`: times with caches warm and cold, and beside a busy
neighbour on the rest of the GPU; `variant`: the architecture of its code), and so may the file
(`machine`): `tessc profile` writes them. `host_call_ns` of `machine` is what a call takes by which
the host hands work over, `host_byte_ns` what it takes to copy a byte of an input or output.
`transfers` are copies by size:
`{"gpu": "h200", "sms": 84, "kind": "device", "bytes": 4096, "ns": 3200.0}`. `wholes` are times of
the whole trace by device; `together_ns` of one is the time of a request while two or more
are under way there and on the rest of its GPU, for long:
`{"gpu": "h200", "sms": 84, "ns": 3.1e6, "together_ns": 3.5e6}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.text.nested import is_deep
from tessera.ir.plan.costs import Measured, MeasuredCopy, MeasuredTogether, Profile
from tessera.ir.plan.machine import Gpu

SCHEMA = "tessera-profile/1"
_KEYS = {
    "step": int,
    "name": str,
    "gpu": str,
    "sms": int,
    "ns": float,
    "error": float,
    "variant": str,
}
_TIMES = ("warm_ns", "cold_ns", "beside_compute_ns", "beside_memory_ns")
_MORE = {"machine", "wholes", "transfers"}
_COPY_KEYS = ("gpu", "sms", "kind", "bytes", "ns")
COPY_KINDS = ("device", "in", "out")
_LEAST_NS, _MOST_NS = 1e-3, 3.6e12
_MOST_ERROR = 1e3


def parse_profile(text: str, name: str = "<profile>") -> Profile:
    """The measurements in a text."""
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise bad_profile(f"`{name}` is nested too deeply") from None
    except ValueError as problem:
        raise bad_profile(f"`{name}` is not JSON: {problem}") from None
    if is_deep(data):
        raise bad_profile(f"`{name}` is nested too deeply")
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise bad_profile(f"`{name}` is no profile: its `schema` must be `{SCHEMA}`")
    if set(data) - _MORE != {"schema", "program", "rows"} or not isinstance(data["program"], str):
        raise bad_profile(f"`{name}` must have the keys schema, program (a text) and rows")
    if not isinstance(data["rows"], list):
        raise bad_profile(f"`rows` of `{name}` must be a list")
    rows = tuple(_row(row, f"row {index} of `{name}`") for index, row in enumerate(data["rows"]))
    _check_once(rows, name)
    for key in ("transfers", "wholes"):
        if not isinstance(data.get(key, []), list):
            raise bad_profile(f"`{key}` of `{name}` must be a list")
    copies = tuple(
        _copy(row, f"transfer {index} of `{name}`")
        for index, row in enumerate(data.get("transfers", []))
    )
    wholes = (
        _together(row, f"whole {index} of `{name}`")
        for index, row in enumerate(data.get("wholes", []))
    )
    together = tuple(whole for whole in wholes if whole is not None)
    return Profile(data["program"], rows, copies, together, *_host_times(data, name))


def _host_times(data: dict[str, object], name: str) -> Iterator[float]:
    """What a call and a byte take the host; 0 where the file does not say."""
    machine = data.get("machine", {})
    if not isinstance(machine, dict):
        raise bad_profile(f"`machine` of `{name}` must be an object")
    for key in ("host_call_ns", "host_byte_ns"):
        known = key in machine
        yield _time(machine[key], key, f"`machine` of `{name}`") if known else 0.0


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key `{key:.60}` is given twice")
        members[key] = value
    return members


def _check_once(rows: tuple[Measured, ...], name: str) -> None:
    """Within one file no code of a step is measured twice: nobody could say which time counts."""
    seen: dict[tuple[int, str, int], dict[str, int]] = {}
    for index, row in enumerate(rows):
        variants = seen.setdefault((row.step, row.gpu, row.sms), {})
        same = {row.variant, ""} & variants.keys() if row.variant else variants.keys()
        if same:
            first = min(variants[variant] for variant in same)
            raise bad_profile(
                f"rows {first} and {index} of `{name}` are both of step #{row.step} on"
                f" {row.sms} SMs of `{row.gpu}`",
                "rows of several variants of its code name them (`variant`)",
            )
        variants[row.variant] = index


def _gpu(row: dict[str, object], where: str) -> Gpu:
    """The GPU of the table that a row names."""
    given = _field(row, "gpu", where)
    try:
        return find_gpu(given)
    except TesseraError as problem:
        raise bad_profile(
            f"`gpu` of {where} is none of the table: `{given:.60}`", problem.diagnostics[0].hint
        ) from None


def _count(row: dict[str, object], key: str, where: str, least: int) -> int:
    number: int = _field(row, key, where)
    if number < least:
        raise bad_profile(f"`{key}` of {where} must be a whole number, {least} or more")
    return number


def _together(row: object, where: str) -> MeasuredTogether | None:
    if not isinstance(row, dict):
        raise bad_profile(f"{where} must be an object")
    if row.get("together_ns") is None:
        return None
    gpu, sms = _gpu(row, where).key, _count(row, "sms", where, 1)
    steady = row.get("steady_ns")
    return MeasuredTogether(
        gpu=gpu,
        sms=sms,
        ns=_time(row["together_ns"], "together_ns", where),
        steady_ns=None if steady is None else _time(steady, "steady_ns", where),
    )


def _copy(row: object, where: str) -> MeasuredCopy:
    if not isinstance(row, dict) or set(row) != set(_COPY_KEYS):
        raise bad_profile(f"{where} must have the keys {', '.join(_COPY_KEYS)}")
    if row["kind"] not in COPY_KINDS:
        raise bad_profile(f"`kind` of {where} must be one of {', '.join(COPY_KINDS)}")
    size, sms = row["bytes"], row["sms"]
    if type(size) is not int or type(sms) is not int or size <= 0 or sms <= 0:
        raise bad_profile(f"`bytes` and `sms` of {where} must be whole numbers above zero")
    return MeasuredCopy(
        gpu=_gpu(row, where).key,
        sms=sms,
        kind=row["kind"],
        bytes=size,
        ns=_time(row["ns"], "ns", where),
    )


def _row(row: object, where: str) -> Measured:
    if not isinstance(row, dict):
        raise bad_profile(f"{where} must be an object")
    for key in row:
        if key not in _KEYS and key not in _TIMES:
            raise bad_profile(f"{where} has an unknown key `{key}`")
    gpu = _gpu(row, where)
    error_bar = _field({"error": 0.05, **row}, "error", where)
    if not 0 <= error_bar <= _MOST_ERROR:
        raise bad_profile(f"`error` of {where} is no fraction: a number from 0 to {_MOST_ERROR:g}")
    more = {key: _time(row[key], key, where) for key in _TIMES if key in row}
    return Measured(
        step=_count(row, "step", where, 0),
        name=_field(row, "name", where),
        gpu=gpu.key,
        sms=_count({"sms": gpu.sms, **row}, "sms", where, 1),
        ns=_time(_field(row, "ns", where), "ns", where),
        error=float(error_bar),
        beside_compute_ns=more.get("beside_compute_ns"),
        beside_memory_ns=more.get("beside_memory_ns"),
        variant=_field({"variant": "", **row}, "variant", where),
    )


def _time(value: object, key: str, where: str) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not _LEAST_NS <= value <= _MOST_NS
    ):
        raise bad_profile(
            f"`{key}` of {where} is no time",
            hint=f"times are nanoseconds, from {_LEAST_NS:g} to {_MOST_NS:g} (an hour)",
        )
    return float(value)


def _field(row: dict[str, object], key: str, where: str) -> Any:
    if key not in row:
        raise bad_profile(f"{where} lacks the key `{key}`")
    wanted = _KEYS[key]
    if type(row[key]) is not wanted and not (wanted is float and type(row[key]) is int):
        raise bad_profile(f"`{key}` of {where} has the wrong type")
    return row[key]


def bad_profile(headline: str, hint: str | None = None) -> TesseraError:
    """An error about a profile."""
    return TesseraError.of("TSR3015", headline, hint=hint)
