"""The mixes of `gain`, and what is worked out from measured rows without a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DECODE, CONTEXT, LAYERS, SMS = 128, 4096, 4, 132
GPU = "h200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A step, the splits that are tried for it, and the SMs its products are tuned for."""

    prefill: int
    splits: tuple[tuple[int, int], ...]
    tuned: tuple[int, int]

    @property
    def name(self) -> str:
        return f"p{self.prefill}"

    @property
    def rows(self) -> int:
        return self.prefill + DECODE


_A, _B, _C, _D, _E, _F = (68, 64), (76, 56), (84, 48), (100, 32), (108, 24), (116, 16)
MIXES = (
    Mix(prefill=128, splits=(_A, _B, _C), tuned=_B),
    Mix(prefill=384, splits=(_A, _B, _C), tuned=_B),
    Mix(prefill=896, splits=(_C, _D, _E), tuned=_D),
    Mix(prefill=1920, splits=(_D, _E, _F), tuned=_E),
    Mix(prefill=3968, splits=(_D, _E, _F), tuned=_F),
)
BASELINES = ("dp", "layers", "phase", "attention")
PLAN_SLOTS = 6


def best(rows: Iterable[Mapping[str, Any]], key: str) -> Mapping[str, Any]:
    """The row with the smallest value; the first of equal ones."""
    return min(rows, key=lambda row: row[key])


def summary(periods: Sequence[float]) -> dict[str, float]:
    """The median of repeats in microseconds, and how far they lie apart as a fraction of it."""
    middle = statistics.median(periods)
    spread = (max(periods) - min(periods)) / middle
    return {"us": round(middle / 1e3, 1), "spread": round(spread, 4)}


def strategy_of(name: str) -> str:
    """`dp@4` is the strategy `dp` with 4 slots."""
    return name.partition("@")[0]


def split_of(targets: Mapping[str, str]) -> str:
    """`84+48` for slices, the GPU's SMs for a whole one."""
    sizes = [target.partition("cuda:0:")[2].removesuffix("sm") for target in targets.values()]
    return "+".join(size or str(SMS) for size in sizes)


def best_slots(measured: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Per strategy the name of its fastest configuration, by the median of what was measured."""
    found: dict[str, str] = {}
    for name, periods in measured.items():
        if not periods:
            continue
        strategy = strategy_of(name)
        known = found.get(strategy)
        if known is None or statistics.median(periods) < statistics.median(measured[known]):
            found[strategy] = name
    return found


def ratios(us: Mapping[str, float]) -> dict[str, float | str]:
    """The kernel-level plan against the whole GPU, plain streams, and the best coarse baseline."""
    coarse = {name: us[name] for name in BASELINES if name in us}
    found: dict[str, float | str] = {}
    if "kernel" not in us:
        return found
    if "serial" in us:
        found["of_serial"] = round(us["serial"] / us["kernel"], 3)
    if "streams" in us:
        found["of_streams"] = round(us["streams"] / us["kernel"], 3)
    if coarse:
        name = min(coarse, key=coarse.__getitem__)
        found |= {"coarse": name, "of_coarse": round(coarse[name] / us["kernel"], 3)}
    return found


def decision(us: Mapping[str, float], worth: float = 1.0) -> str:
    """What is fastest of what a planner may choose: not to split, or a plan that is worth it."""
    known = {name: us[name] for name in ("serial", "kernel", *BASELINES) if name in us}
    return min(known, key=lambda name: known[name] * (1.0 if name == "serial" else worth))
