"""What kernel-level plans on slices of one GPU bring for a mix of prompts and answers.

    python -m benchmarks.gain.gain capture FOLDER     # on the GPU: tiles, traces
    python -m benchmarks.gain.pairs FOLDER/pairs.json   # on the GPU: two kernels side by side
    python -m benchmarks.gain.gain profile FOLDER     # on the GPU: profiles
    python -m benchmarks.gain.gain together FOLDER    # on the GPU: adds to old profiles what \
        they lack
    python -m benchmarks.gain.gain plan FOLDER        # anywhere: plans for all mixes, splits, \
        baselines
    python -m benchmarks.gain.gain predict FOLDER     # the same, but nothing is made ready to run
    python -m benchmarks.gain.gain predicted FOLDER FILE   # anywhere: what was predicted, in short
    python -m benchmarks.gain.gain run FOLDER         # on the GPU: all plans in turns
    python -m benchmarks.gain.gain report FOLDER FILE # anywhere: gain.json

A mix is a step of `benchmarks.gain.model`: one token for each of 128 sequences with 4096 tokens of
context, and so many tokens of a prompt. `serial` is the whole GPU, one request after the other, as
a plain graph that is replayed with no host in between; `streams` are requests side by side on the
whole GPU; all others are plans for two slices. Every plan has the number of slots and, within what
the profile predicts, the slices that are best for it. `results/gain_inputs.tar.xz` has what the
stages up to `profile` left on an H200.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gain.mixes import (
    CONTEXT,
    DECODE,
    GPU,
    LAYERS,
    MIXES,
    SMS,
    best_slots,
    split_of,
    strategy_of,
)

REPEATS, SECONDS, TRY_SECONDS = 5, 0.5, 0.15
ARENA_BYTES = 110 << 30
# Some mixes only, and some strategies; then `measured_again.json` is written.
ONLY = tuple(os.environ.get("GAIN_MIXES", "").split())
ONLY_STRATEGIES = tuple(os.environ.get("GAIN_STRATEGIES", "").split())


# --- capture ---------------------------------------------------------------------------------


def jobs() -> list[dict[str, Any]]:
    """What is tuned: for each mix the whole GPU and its slices, and both phases alone."""
    found = []
    for mix in MIXES:
        big, small = mix.tuned
        about = {"prefill": mix.prefill, "decode": DECODE, "rows": mix.rows}
        found.append({"name": f"{mix.name}_whole", "sms": SMS, "small": SMS, **about})
        found.append({"name": f"{mix.name}_slices", "sms": big, "small": small, **about})
        alone = {"prefill": mix.prefill, "decode": 0, "rows": mix.prefill}
        found.append({"name": f"{mix.name}_prefill", "sms": big, "small": small, **alone})
    found.append(
        {"name": "decode", "prefill": 0, "decode": DECODE, "rows": DECODE, "sms": 56, "small": 56}
    )
    return found


def capture(folder: Path) -> None:
    """Tune, then capture every step; several processes, since most of it is the host's work."""
    (folder / "jobs.json").write_text(json.dumps(jobs()))
    tune = [sys.executable, "-m", "benchmarks.gain.tune", f"{folder}/jobs.json"]
    subprocess.run([*tune, f"{folder}/tiles.json"], check=True)
    tiles = json.loads((folder / "tiles.json").read_text())
    side_by_side("capture-some", folder, list(tiles), 8)


def side_by_side(stage: str, folder: Path, names: Sequence[str], processes: int) -> None:
    """Names dealt to processes: most of the work is the host's."""
    command = [sys.executable, "-m", "benchmarks.gain.gain", stage, str(folder)]
    running = [subprocess.Popen([*command, *names[n::processes]]) for n in range(processes)]
    codes = [one.wait() for one in running]
    if any(codes):
        raise SystemExit(f"{stage} failed: {codes}")


def capture_some(folder: Path, names: Sequence[str]) -> None:
    """Capture some of the steps in this process."""
    from benchmarks.gain.capture import capture_step

    tiles = json.loads((folder / "tiles.json").read_text())
    for name in names:
        row = tiles[name]
        begun = time.perf_counter()
        capture_step(
            folder / f"{name}.ptx",
            prefill=row["prefill"],
            decode=row["decode"],
            layers=LAYERS,
            context=CONTEXT,
            tiles=row["tiles"],
        )
        print(f"captured {name} in {time.perf_counter() - begun:.1f} s", flush=True)


# --- profile ---------------------------------------------------------------------------------


def to_profile() -> dict[str, str]:
    """The devices to profile each trace on."""

    def slices(sizes: Iterable[int]) -> str:
        return ",".join(f"{GPU}:{size}sm" for size in dict.fromkeys(sizes))

    found = {}
    for mix in MIXES:
        found[f"{mix.name}_whole"] = GPU
        found[f"{mix.name}_slices"] = slices(size for split in mix.splits for size in split)
        found[f"{mix.name}_prefill"] = slices((mix.tuned[0],))
    found["decode"] = slices(mix.tuned[1] for mix in MIXES)
    return found


def profile(folder: Path, names: Sequence[str], repeats: int = 5) -> None:
    """Profile traces in this process; of all processes one measures at a time."""
    from benchmarks.gain.device import profile as measure_trace
    from benchmarks.gain.device import random_block
    from tessera.driver.profile import profile_text

    block = random_block()
    devices = to_profile()
    for name in names:
        begun = time.perf_counter()
        found = measure_trace(
            str(folder / f"{name}.ptx"), devices[name], repeats, block, folder / "lock"
        )
        (folder / f"{name}.json").write_text(profile_text(found))
        wholes = {row["sms"]: round(row["ns"] / 1e3) for row in found["wholes"]}
        print(f"profiled {name} in {time.perf_counter() - begun:.1f} s: {wholes}", flush=True)


def has_together(path: Path) -> bool:
    """Whether a profile says what slices take that are busy together."""
    return all("together_ns" in row for row in json.loads(path.read_text())["wholes"])


def add_together(folder: Path, names: Sequence[str]) -> None:
    """What slices take that are busy together for long, into profiles that were made without."""
    from benchmarks.gain.device import random_block, together
    from tessera.driver.profile import profile_text

    block = random_block()
    for name in names:
        path = folder / f"{name}.json"
        found = together(str(path.with_suffix(".ptx")), to_profile()[name], block, folder / "lock")
        data = json.loads(path.read_text())
        for row in data["wholes"]:
            row["together_ns"] = found[row["sms"]]
        path.write_text(profile_text(data))
        print(f"together {name}: {found}", flush=True)


def main() -> None:
    stage, folder = sys.argv[1], Path(sys.argv[2])
    match stage:
        case "capture":
            capture(folder)
        case "capture-some":
            capture_some(folder, sys.argv[3:])
        case "profile":
            names = [name for name in to_profile() if not (folder / f"{name}.json").exists()]
            side_by_side("profile-some", folder, names, 4)
        case "profile-some":
            profile(folder, sys.argv[3:])
        case "together":
            names = [name for name in to_profile() if ":" in to_profile()[name]]
            lacking = [name for name in names if not has_together(folder / f"{name}.json")]
            side_by_side("together-some", folder, lacking, min(len(lacking), 6))
        case "together-some":
            add_together(folder, sys.argv[3:])
        case "plan":
            side_by_side("plan-some", folder, [mix.name for mix in MIXES], processes=5)
        case "predict" | "plan-some":
            from benchmarks.gain.plans import plan_all

            names = sys.argv[3:] or [mix.name for mix in MIXES]
            plan_all(folder, names, prepare=stage == "plan-some")
        case "predicted":
            from benchmarks.gain.plans import predicted

            Path(sys.argv[3]).write_text(json.dumps(predicted(folder), indent=1) + "\n")
        case "run":
            run(folder, float(sys.argv[3]) if len(sys.argv) > 3 else 1e9)
        case "report":
            from benchmarks.gain.report import report

            target = Path(sys.argv[3])
            target.write_text(json.dumps(report(folder), indent=1) + "\n")
        case _:
            raise SystemExit(__doc__)


# --- run -------------------------------------------------------------------------------------


def run(folder: Path, seconds_in_all: float = 1e9) -> None:
    """Every plan of every mix: a short try of each number of slots, then the best in turns."""
    from benchmarks.gain.device import measure

    begun = time.monotonic()
    found: dict[str, Any] = {}
    wanted = [mix for mix in MIXES if mix.name in ONLY] if ONLY else MIXES
    for number, mix in enumerate(wanted):
        plans = pickle.loads((folder / f"{mix.name}_plans.pkl").read_bytes())
        if ONLY_STRATEGIES:
            plans = [one for one in plans if strategy_of(one.name) in ONLY_STRATEGIES]
        deadline = begun + seconds_in_all * (number + 1) / len(wanted)
        tried: dict[str, list[str]] = {"said": []}

        def tell(name: str, periods: list[float], said: list[str] = tried["said"]) -> None:
            said.append(name) if not periods else None
            print("  ", name, [round(one / 1e3) for one in periods], flush=True)

        measured, clocks = measure(
            plans,
            ARENA_BYTES,
            seconds=(TRY_SECONDS, SECONDS),
            repeats=REPEATS,
            keep=best_slots,
            on_row=tell,
            deadline=deadline,
        )
        found[mix.name] = {
            "periods_ns": measured,
            "failed": tried["said"],
            "clocks": clocks,
            "rate": "slope",
            "split": {strategy_of(one.name): split_of(one.targets) for one in plans},
        }
        print(mix.name, f"{time.monotonic() - begun:.1f} s", flush=True)
        target = "measured_again.json" if ONLY_STRATEGIES else "measured.json"
        (folder / target).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
