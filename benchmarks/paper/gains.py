"""Gains of cells of the paper's figures.

In: rows of `paper.json`. Out: how many times as many requests one way serves as another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOISE = 0.05
USUAL = "100Gb/s"
LINKS = ("25Gb/s", USUAL, "400Gb/s")
COARSE = ("dp", "phase", "attention", "layers", "tensor")
_FEW_ROWS = 0.5
Row = Mapping[str, Any]


def figure(row: Row, name: str, link: str = USUAL) -> float | None:
    """A period of a cell."""
    value = row[link].get(name)
    return None if value is None else float(value)


def gain(row: Row, over: str, of: str = "kernel", link: str = USUAL) -> float | None:
    """How many times as many requests one split serves as another; None if one is missing."""
    ours, theirs = figure(row, of, link), figure(row, over, link)
    return None if ours is None or theirs is None else theirs / ours


def best_coarse(row: Row, link: str = USUAL) -> str | None:
    """The best of the splits that people make without a search."""
    known = {n: v for n in COARSE if (v := figure(row, n, link)) is not None}
    return min(known, key=lambda name: known[name]) if known else None


def over_best(row: Row, of: str = "kernel", link: str = USUAL) -> float | None:
    """Over the best coarse split."""
    name = best_coarse(row, link)
    return None if name is None else gain(row, name, of, link)


def is_measured(row: Row) -> bool:
    """Whether tables have most of the time on both GPUs."""
    return all(own.get("table", 0.0) >= _FEW_ROWS for own in row["sources"])


def where(row: Row) -> str:
    """The cell in words."""
    sides = f" {row['count']}+{row['count']}" if row["count"] > 1 else ""
    return f"{row['model']} on {title_of(row['pair'])}{sides}, batch {row['batch']}, {mix_of(row)}"


def mix_of(row: Row) -> str:
    """Tokens of prompt and answer."""
    return f"{row['mix'][0]}/{row['mix'][1]}" if row["mix"][0] else "images"


def title_of(pair: str) -> str:
    """A pair of GPUs."""
    return " + ".join(name.upper() for name in pair.split(","))


def per_dollar(row: Row) -> float | None:
    """Requests per dollar over two of the first GPU."""
    two, prices = gain(row, "two_first"), row["usd_per_hour"]
    return None if two is None or None in prices else two * 2 * prices[0] / sum(prices)
