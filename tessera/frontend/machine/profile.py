"""Read a profile: measured times of the steps of a trace, as JSON.

    {"schema": "tessera-profile/1", "program": "DIGEST", "rows": [
      {"step": 3, "name": "m0.linear", "gpu": "a100", "sms": 108, "ns": 8123.0, "error": 0.02}]}

In: text. Out: a `Profile`. `program` is the digest of the trace in plans of it; `gpu` is a name of
the table; `sms` may be left out for a whole card. Times are above zero and at most an hour, so that
their sums and ratios stay finite. Rows may say more (`warm_ns`, `cold_ns`, `beside_compute_ns`,
`beside_memory_ns`: times with caches warm and cold, and beside a busy neighbour on the rest of the
GPU; `variant`: the architecture of its code), and so may the file (`machine`): `tessc profile`
writes them. `host_call_ns` of `machine` is the time of a host call that submits work,
`host_byte_ns` the time to copy a byte of an input or output. `transfers` are copies by size:
`{"gpu": "h200", "sms": 84, "kind": "device", "bytes": 4096, "ns": 3200.0}`. `wholes` are times of
the whole trace by device; `together_ns` of a row is the time of a request under sustained load,
with two or more requests under way on the device and on the rest of its GPU:
`{"gpu": "h200", "sms": 84, "ns": 3.1e6, "together_ns": 3.5e6}`. `seeded` is true if weights were
from a seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.text.nested import is_deep
from tessera.frontend.text.shapes import shaped
from tessera.ir.plan.costs import Measured, MeasuredCopy, MeasuredTogether, Profile
from tessera.ir.plan.machine import Gpu

SCHEMA = "tessera-profile/1"
# From a picosecond to an hour.
_Ns = Annotated[float, Meta(ge=1e-3, le=3.6e12)]
_Count = Annotated[int, Meta(ge=1)]


class _ProfileRow(Struct, forbid_unknown_fields=True):
    step: Annotated[int, Meta(ge=0)]
    name: str
    gpu: str
    ns: _Ns
    sms: _Count | UnsetType = UNSET
    error: Annotated[float, Meta(ge=0, le=1e3)] = 0.05
    variant: str = ""
    warm_ns: _Ns | UnsetType = UNSET
    cold_ns: _Ns | UnsetType = UNSET
    beside_compute_ns: _Ns | UnsetType = UNSET
    beside_memory_ns: _Ns | UnsetType = UNSET


class _ProfileCopy(Struct, forbid_unknown_fields=True):
    gpu: str
    sms: _Count
    kind: Literal["device", "in", "out"]
    bytes: _Count
    ns: _Ns


class _Whole(Struct):
    gpu: str | UnsetType = UNSET
    sms: _Count | UnsetType = UNSET
    together_ns: _Ns | None = None
    steady_ns: _Ns | None = None


class _ProfileMachine(Struct, frozen=True):
    host_call_ns: _Ns | UnsetType = UNSET
    host_byte_ns: _Ns | UnsetType = UNSET


class _ProfileFile(Struct, forbid_unknown_fields=True):
    schema: str
    program: str
    rows: list[_ProfileRow]
    machine: _ProfileMachine = _ProfileMachine()
    wholes: list[_Whole] = []
    transfers: list[_ProfileCopy] = []
    seeded: bool = False


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
    file = shaped(
        data,
        _ProfileFile,
        lambda why, hint: bad_profile(f"`{name}` is no profile: {why}", hint),
        (_ProfileFile, _ProfileRow, _ProfileCopy),
    )
    rows = tuple(
        _measured(row, f"row {n} of `{name}`", file.seeded) for n, row in enumerate(file.rows)
    )
    _check_once(rows, name)
    return Profile(
        file.program,
        rows,
        tuple(_copied(row, f"transfer {n} of `{name}`") for n, row in enumerate(file.transfers)),
        tuple(_together(file.wholes, name)),
        file.machine.host_call_ns or 0.0,
        file.machine.host_byte_ns or 0.0,
    )


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key `{key:.60}` is given twice")
        members[key] = value
    return members


def _measured(row: _ProfileRow, where: str, seeded: bool) -> Measured:
    gpu = _gpu(row.gpu, where)
    return Measured(
        step=row.step,
        name=row.name,
        gpu=gpu.key,
        sms=row.sms or gpu.sms,
        ns=row.ns,
        error=row.error,
        beside_compute_ns=row.beside_compute_ns or None,
        beside_memory_ns=row.beside_memory_ns or None,
        variant=row.variant,
        seeded=seeded,
    )


def _copied(row: _ProfileCopy, where: str) -> MeasuredCopy:
    gpu = _gpu(row.gpu, where).key
    return MeasuredCopy(gpu=gpu, sms=row.sms, kind=row.kind, bytes=row.bytes, ns=row.ns)


def _together(rows: list[_Whole], name: str) -> Iterator[MeasuredTogether]:
    """The times of whole traces beside others; rows without `together_ns` are left out."""
    for index, row in enumerate(rows):
        if row.together_ns is None:
            continue
        where = f"whole {index} of `{name}`"
        if row.gpu is UNSET or row.sms is UNSET:
            raise bad_profile(f"{where} lacks the key `{'gpu' if row.gpu is UNSET else 'sms'}`")
        yield MeasuredTogether(
            gpu=_gpu(row.gpu, where).key,
            sms=row.sms,
            ns=row.together_ns,
            steady_ns=row.steady_ns,
        )


def _check_once(rows: tuple[Measured, ...], name: str) -> None:
    """Refuse a file in which a step's code is measured twice: it would be unclear which time
    counts."""
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


def _gpu(given: str, where: str) -> Gpu:
    """The GPU of the table that a row names."""
    try:
        return find_gpu(given)
    except TesseraError as problem:
        raise bad_profile(
            f"`gpu` of {where} is none of the table: `{given:.60}`", problem.diagnostics[0].hint
        ) from None


def bad_profile(headline: str, hint: str | None = None) -> TesseraError:
    """An error about a profile."""
    return TesseraError.of("TSR3015", headline, hint=hint)
