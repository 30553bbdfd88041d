"""A plan in a few lines, from the report of `tessc plan --json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def plan_lines(report: dict[str, Any]) -> Iterator[str]:
    """What was chosen, how good that is, where each step runs, and what else there was."""
    yield f"{report['strategy']}, for {report['objective']}"
    yield from _figures(report)
    for number, replica in enumerate(report["replicas"]):
        yield from _replica(number, replica)
    for card in report["cards"]:
        used, capacity = card["used_bytes"], card["capacity_bytes"]
        yield f"memory of {card['name']}: {used} of {capacity} bytes"
    for other in report["baselines"]:
        yield (
            f"or {other['name']}: a request every {_us(other['period_ns'])}, "
            f"done after {_us(other['latency_ns'])}"
        )


def _figures(report: dict[str, Any]) -> Iterator[str]:
    yield f"a request every {_us(report['period_ns'])}, done after {_us(report['latency_ns'])}"
    if report["ended"] == "given":
        return
    bound = report["bound"]
    shown = f"${bound * 1e6:.4f} per million" if report["objective"] == "cost" else _us(bound)
    if report["objective"] == "cost":
        yield f"${report['usd_per_request'] * 1e6:.4f} per million requests"
    yield f"no plan beats {shown}; this one is within {report['gap']:.1%}"


def _replica(number: int, replica: dict[str, Any]) -> Iterator[str]:
    yield (
        f"replica {number}: {replica['share']:.0%} of requests, "
        f"slots {replica['slots']}, lanes {replica['lanes']}"
    )
    for placed in replica["traces"]:
        for step in placed["steps"]:
            where, time = step["device"], _us(step["predicted_ns"])
            yield f"  #{step['step']} {step['name']} on {where}: {time}"
        for moved in placed["transfers"]:
            ends = f"{moved['source']} to {moved['target']}"
            yield f"  moves {moved['tensor']}: {moved['bytes']:.0f} bytes, {ends}"


def _us(ns: float) -> str:
    return f"{ns / 1000:.1f} us"
