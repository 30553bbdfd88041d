"""The figures of `gain` in one file: what was profiled, predicted, bounded, measured.

In: a folder with what the stages left: profiles, `MIX_plans.json`, and `pairs.json`,
`measured.json` and `measured_again.json` where those stages ran. Out: `gain.json`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gain.mixes import (
    BASELINES,
    CONTEXT,
    DECODE,
    LAYERS,
    MIXES,
    SMS,
    Mix,
    decision,
    ratios,
    strategy_of,
    summary,
)

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY = 4096, 32, 8, 128, 14336, 32768
PEAK_BYTES_PER_US = 4.8e6
Kinds = Mapping[str, Mapping[str, Mapping[str, float]]]
PRODUCTS = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}
# The steps of a layer, in order, after one that looks tokens up.
LAYER = (
    "norm",
    "qkv",
    "rotate_decode",
    "attention_decode",
    "rotate_prefill",
    "attention_prefill",
    "o",
    "norm",
    "gate_up",
    "silu",
    "down",
)


def kind_of(step: int) -> str:
    """What a step of the mixed step does."""
    if step == 0:
        return "embed"
    place = step - 1
    if place < LAYERS * len(LAYER):
        return LAYER[place % len(LAYER)]
    return ("norm", "head", "most_likely")[place - LAYERS * len(LAYER)]


def work_of(kind: str, prefill: int) -> tuple[float, float]:
    """Bytes from memory and products (operations) that a kind of step cannot do without."""
    rows = prefill + DECODE
    if kind in PRODUCTS:
        columns, depth = PRODUCTS[kind]
        return 2.0 * columns * depth, 2.0 * rows * columns * depth
    if kind == "head":
        return 2.0 * VOCABULARY * HIDDEN, 2.0 * DECODE * VOCABULARY * HIDDEN
    if kind == "attention_decode":
        seen = DECODE * KV_HEADS * CONTEXT * HEAD
        return 4.0 * seen, 4.0 * seen * HEADS / KV_HEADS
    if kind == "attention_prefill":
        pairs = prefill * (CONTEXT - prefill) + prefill * (prefill + 1) / 2
        return 4.0 * KV_HEADS * CONTEXT * HEAD, 4.0 * pairs * HEADS * HEAD
    return 0.0, 0.0


def by_kind(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Microseconds of all steps of a kind on each number of SMs: alone and beside neighbours."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        place = found.setdefault(kind_of(row["step"]), {}).setdefault(str(row["sms"]), {})
        for key in ("ns", "beside_compute_ns", "beside_memory_ns"):
            if key in row:
                name = {"ns": "alone"}.get(key, key[:-3])
                place[name] = round(place.get(name, 0.0) + row[key] / 1e3, 1)
    return found


def bound_of(
    kinds: Mapping[str, Mapping[str, Mapping[str, float]]], prefill: int
) -> dict[str, Any]:
    """What overlap of memory and products could bring at most, kernel by kernel.

    `memory_us` is the time of a kind's bytes at the bandwidth of the data sheet; `compute_us` its
    operations at the best rate that any product reaches here. A plan that uses both all the time
    takes the larger of the two sums.
    """
    times = {kind: row[str(SMS)]["alone"] for kind, row in kinds.items()}
    counts = {kind: 1 if kind == "head" else LAYERS for kind in kinds}
    work = {kind: work_of(kind, prefill) for kind in kinds}
    rate = max(counts[kind] * work[kind][1] / times[kind] for kind in kinds)
    rows = {
        kind: {
            "whole_us": round(times[kind], 1),
            "memory_us": round(counts[kind] * work[kind][0] / PEAK_BYTES_PER_US, 1),
            "compute_us": round(counts[kind] * work[kind][1] / rate, 1),
        }
        for kind in kinds
    }
    memory = sum(row["memory_us"] for row in rows.values())
    compute = sum(row["compute_us"] for row in rows.values())
    serial = sum(times.values())
    return {
        "kinds": rows,
        "serial_us": round(serial, 1),
        "memory_us": round(memory, 1),
        "compute_us": round(compute, 1),
        "best_tflops": round(rate / 1e6, 1),
        "at_most": round(serial / max(memory, compute), 3),
    }


# --- pairs -----------------------------------------------------------------------------------


def slowdowns(pair: Mapping[str, Any]) -> tuple[float, float]:
    """How much longer products and attention take together than alone."""
    return (pair["each"][0] / pair["alone"][0], pair["each"][1] / pair["alone"][1])


def predicted_pair(
    pair: Mapping[str, Any], split: tuple[int, int], kinds: Kinds, share: float | None
) -> tuple[float, float]:
    """The times of a pair from its times alone and the profile, for a rule of neighbours.

    A `share` is the rule "so far between a neighbour that computes and one that moves memory";
    None is the planner's rule, by what each draws of the memory's bandwidth.
    """
    big, small = split
    products, attention = pair["alone"]
    drawn = [
        sum(2.0 * n * k for n, k in PRODUCTS.values()) / products,
        work_of("attention_decode", 0)[0] / attention,
    ]
    # What the measuring neighbour drew: it saturates the memory from half of the SMs on.
    most = [min(1.0, 2 * sms / SMS) * PEAK_BYTES_PER_US for sms in split]
    shares = [share, share] if share is not None else [drawn[1] / most[1], drawn[0] / most[0]]

    def longer(names: Sequence[str], sms: int, part: float) -> float:
        rows = [kinds[name][str(sms)] for name in names]
        compute = sum(row["beside_compute"] for row in rows)
        memory = sum(row["beside_memory"] for row in rows)
        return 1 + min(1.0, part) * (memory / compute - 1)

    return overlapped(
        (products, attention),
        (
            longer(list(PRODUCTS), big, float(shares[0] or 0.0)),
            longer(["attention_decode"], small, float(shares[1] or 0.0)),
        ),
    )


def overlapped(alone: tuple[float, float], longer: tuple[float, float]) -> tuple[float, float]:
    """The times of two that begin together; the one that goes on alone is not slowed any more."""
    times = [one * factor for one, factor in zip(alone, longer, strict=True)]
    last = times.index(max(times))
    common = min(times)
    times[last] = common + alone[last] - common / longer[last]
    return times[0], times[1]


def pair_rows(pairs: Mapping[str, Any], kinds_of: Mapping[int, Any]) -> list[dict[str, Any]]:
    """Every pair that was measured, beside what both rules predict."""
    found = []
    for rows, entry in pairs.items():
        kinds = kinds_of.get(int(rows))
        for name, pair in entry.items():
            if "+" not in name:
                continue
            big, small = (int(part) for part in name.split("+"))
            longer = slowdowns(pair)
            row: dict[str, Any] = {
                "rows": int(rows),
                "split": name,
                "alone_us": [round(one, 1) for one in pair["alone"]],
                "together_us": [round(one, 1) for one in pair["each"]],
                "longer": [round(one, 3) for one in longer],
                "of_one_after_the_other": round(entry["sum"] / max(pair["each"]), 3),
            }
            if kinds and str(big) in kinds["qkv"] and str(small) in kinds["qkv"]:
                for label, share in (("halfway", 0.5), ("planner", None)):
                    times = predicted_pair(pair, (big, small), kinds, share)
                    row[f"{label}_us"] = [round(one, 1) for one in times]
                    row[f"{label}_off"] = round(max(times) / max(pair["each"]) - 1, 3)
            found.append(row)
    return found


# --- all -------------------------------------------------------------------------------------


def mix_row(
    folder: Path, mix: Mix, measured: Mapping[str, Any], again: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything about one mix."""
    plans = json.loads((folder / f"{mix.name}_plans.json").read_text())
    whole = json.loads((folder / f"{mix.name}_whole.json").read_text())
    slices = json.loads((folder / f"{mix.name}_slices.json").read_text())
    predicted = plans["predicted_us"]
    level = [row for row in plans["all"] if row["strategy"] == "kernel"]
    bound = min(row["bound_ns"] for row in level) / 1e3
    # Slices that are busy take longer than alone, whatever runs on them.
    busy = min(row["bound_ns"] * min(row["together"]) for row in level) / 1e3
    coarse = min(predicted[name] for name in BASELINES if name in predicted)
    row = {
        "prefill": mix.prefill,
        "decode": DECODE,
        "rows": mix.rows,
        "predicted_us": predicted,
        "predicted": ratios(predicted),
        "split": plans["split"],
        "decision": plans["decision"],
        "placement": next(
            one["placement"]
            for one in plans["all"]
            if one["strategy"] == "kernel" and one["split"] == plans["split"]["kernel"]
        ),
        "bound": {
            "no_contention_us": round(bound, 1),
            "of_serial_at_most": round(predicted["serial"] / bound, 3),
            "of_coarse_at_most": round(coarse / bound, 3),
            "busy_us": round(busy, 1),
            "busy_of_serial_at_most": round(predicted["serial"] / busy, 3),
            "busy_of_coarse_at_most": round(coarse / busy, 3),
        },
        "roofline": bound_of(by_kind(whole["rows"]), mix.prefill),
        "profile_us": by_kind(slices["rows"]),
        "steps_and_whole": [steps_and_whole(one) for one in (whole, slices)],
    }
    for name, runs in (("measured", measured), ("measured_again", again)):
        if mix.name in runs:
            row[name] = measured_row(runs[mix.name], plans["all"])
    return row


def steps_and_whole(profile: Mapping[str, Any]) -> dict[str, list[float]]:
    """Per number of SMs the sum of all steps alone and warm, and all steps in one graph."""
    found = {}
    for whole in profile["wholes"]:
        warm = sum(row["warm_ns"] for row in profile["rows"] if row["sms"] == whole["sms"])
        found[str(whole["sms"])] = [round(warm / 1e3, 1), round(whole["ns"] / 1e3, 1)]
    return found


def measured_row(found: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians, ratios and how far off predictions for the splits that were run are."""
    rows = {
        name: summary(periods)
        for name, periods in found["periods_ns"].items()
        if periods and not name.endswith(" (short)")
    }
    us = {strategy_of(name): row["us"] for name, row in rows.items()}
    for name, row in rows.items():
        seen = [one for one in found.get("clocks", {}).get(name, ())[1:] if one[0] is not None]
        if seen:
            row["mhz"] = statistics.median(mhz for mhz, _ in seen)
            row["watts"] = round(statistics.median(watts for _, watts in seen))
    split = found["split"]
    predicted = {
        row["strategy"]: row["period_ns"] / 1e3
        for row in plans
        if split.get(row["strategy"]) == row["split"]
    }
    return {
        "runs": rows,
        "split": split,
        "ratios": ratios(us),
        "fastest": decision(us),
        "failed": found["failed"],
        "predicted_us": {name: round(predicted[name], 1) for name in us if name in predicted},
        "prediction_off": {
            name: round(predicted[name] / us[name] - 1, 3) for name in us if name in predicted
        },
    }


def report(folder: Path) -> dict[str, Any]:
    """All figures."""

    def read(name: str) -> dict[str, Any]:
        path = folder / name
        return json.loads(path.read_text()) if path.exists() else {}

    measured = read("measured.json")
    again = read("measured_again.json")
    mixes = {mix.name: mix_row(folder, mix, measured, again) for mix in MIXES}
    profile = read(f"{MIXES[0].name}_whole.json")
    kinds_of = {mix.rows: mixes[mix.name]["profile_us"] for mix in MIXES}
    pairs = pair_rows(read("pairs.json").get("pairs", {}), kinds_of)
    found: dict[str, Any] = {
        "machine": profile["machine"],
        "layers": LAYERS,
        "context": CONTEXT,
        "tiles": {name: row["tiles"] for name, row in read("tiles.json").items()},
        "mixes": mixes,
        "pairs": pairs,
        "pairs_off": {},
    }
    for label in ("halfway", "planner"):
        off = [abs(row[f"{label}_off"]) for row in pairs if f"{label}_off" in row]
        if off:
            found["pairs_off"][label] = {
                "median": round(statistics.median(off), 3),
                "most": round(max(off), 3),
            }
    if not measured:
        found["measured"] = "no plan was run: the session's time on the GPU had run out"
    return found
