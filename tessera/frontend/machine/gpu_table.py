"""The table of GPUs: `data/gpus.json`, which names its sources, as `Gpu` records.

In: a name as users type it. Out: a `Gpu`, or an error that suggests near names. A short name stands
for one SKU (`also` of its row); the choice is printed, never made silently. Values that the sources
lack are derived here by stated arithmetic: the clock from fp32 throughput, fp32 throughput from SMs
and clock (256 operations per SM and cycle).
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Any

from tessera.diagnostics import TesseraError
from tessera.ir.plan.machine import Gpu, Rate

_TABLE = Path(__file__).parents[2] / "data" / "gpus.json"

# One list price per GPU, from the first provider that has one, so that prices are comparable.
PRICE_ORDER = ("runpod", "aws", "gcp", "azure", "lambda", "nebius", "hyperstack", "vast")
# Code for sm_90a and similar architectures runs on that generation only.
_SUFFIXED = {"9.0": "sm_90a", "10.0": "sm_100a", "10.3": "sm_103a", "12.0": "sm_120a"}


@cache
def gpu_table() -> dict[str, Gpu]:
    """All GPUs by key, in the order of the table."""
    return {key: _gpu(key, row) for key, row in _rows().items()}


@cache
def aliases() -> dict[str, str]:
    """The key that each short name stands for."""
    return {alias: key for key, row in _rows().items() for alias in row.get("also", ())}


@cache
def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text("utf-8"))["gpus"]
    return rows


def find_gpu(name: str) -> Gpu:
    """The GPU of a key or an alias; upper case, spaces and underscores are accepted."""
    table = gpu_table()
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    key = aliases().get(wanted, wanted)
    if key in table:
        return table[key]
    near = difflib.get_close_matches(wanted, [*aliases(), *table], n=3, cutoff=0.5)
    known = ", ".join(f"`{gpu_name}`" for gpu_name in near)
    raise TesseraError.of(
        "TSR3001",
        f"there is no GPU `{name}` in the table",
        hint=f"did you mean {known}?"
        if near
        else "`tessc gpus` lists all; a machine file describes others",
    )


def aliases_of(key: str) -> tuple[str, ...]:
    """The short names of a GPU."""
    return tuple(alias for alias, target in aliases().items() if target == key)


def _value(cell: Any) -> Any:
    return cell["value"] if isinstance(cell, dict) else cell


def _gpu(key: str, row: dict[str, Any]) -> Gpu:
    sms = _value(row["sm_count"])
    sheet = {unit: _value(cell) for unit, cell in row["tflops_dense"].items()}
    fp32 = sheet.pop("fp32_cuda_cores")
    clock = _value(row["boost_mhz"])
    if clock is None:
        clock = fp32 * 1e12 / (sms * 256) / 1e6
    if fp32 is None:
        fp32 = sms * 256 * clock * 1e6 / 1e12
    rates = [Rate(unit, value * 1e12) for unit, value in sheet.items() if value is not None]
    nvlink = _value(row["nvlink_gbs_total_bidir"])
    capability = row["compute_capability"]
    price, price_source = _price(row["cloud_usd_per_gpu_hour"])
    return Gpu(
        key=key,
        name=row["name"],
        arch=_SUFFIXED.get(capability, "sm_" + capability.replace(".", "")),
        sms=sms,
        clock_mhz=float(clock),
        memory_bytes=round(_value(row["dram_gb"]) * 1e9),
        memory_bandwidth=_value(row["dram_gbs"]) * 1e9,
        l2_bytes=round(_value(row["l2_mb"]) * 2**20),
        rates=(*rates, Rate("fp32", fp32 * 1e12)),
        nvlink_bandwidth=None if nvlink is None else nvlink * 1e9 / 2,
        pcie_generation=row["pcie_gen"],
        pcie_bandwidth=row["pcie_gbs_per_direction_x16_nominal"] * 1e9,
        usd_per_hour=price,
        price_source=price_source,
        watts=_value(row["tdp_w"]),
    )


def _price(rows: list[dict[str, Any]]) -> tuple[float | None, str]:
    by_provider = {row["provider"]: row["usd_per_gpu_hour"] for row in reversed(rows)}
    for provider in PRICE_ORDER:
        if provider in by_provider:
            return by_provider[provider], provider
    return None, ""
