"""How devices spent their time, as text and as JSON: computing, moving, waiting, idle."""

from __future__ import annotations

from dataclasses import asdict

from tessera.driver.waiting import TimeByPlace, TimeSpent


def time_text(spent: TimeByPlace) -> str:
    """Shares of the time of each device."""
    return "; ".join(f"{name} {shares_text(own)}" for name, (own, _) in spent.items())


def shares_text(own: TimeSpent) -> str:
    """Shares of a time, in order."""
    parts = {key.removesuffix("_ns"): ns for key, ns in asdict(own).items()}
    whole = sum(parts.values()) or 1.0
    return ", ".join(f"{key} {ns / whole:.0%}" for key, ns in parts.items())


def time_json(spent: TimeByPlace) -> dict[str, dict[str, object]]:
    """Nanoseconds of each device and of its queues."""
    return {
        name: {**asdict(own), "queues": {queue.value: asdict(o) for queue, o in queues.items()}}
        for name, (own, queues) in spent.items()
    }
