"""Requests of a plan, from the command line to their results: `serve.py` of emitted programs.

`main` reads the command line and the files, opens the devices on their GPUs, fills their memory,
serves the requests and writes what they leave. What a device does for a request is in the program
of that device, in words of `common.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tessera.backend.cuda.emitted.emitted_common import (
    MISSING,
    POISON,
    Device,
    Request,
    check,
    cuda,
    np,
    pinned,
    u64,
)

PlanTables = dict[str, Any]  # `PLAN` of `run.py`
Programs = dict[str, dict[int, tuple[Any, Any, Any]]]  # functions of queues, by device and trace
Arrays = dict[str, Any]
# `split_gpu` of `slices.py`.
SplitGpu = Callable[..., tuple[tuple[Any, int], ...]]


class Calls:
    """The driver as `slices.py` calls it."""

    cu = cuda
    failure = RuntimeError

    def call(self, name: str, *args: Any) -> Any:
        """The results of a call."""
        return check(getattr(cuda, name)(*args))


def cut(
    split_gpu: SplitGpu, ordinal: int, sms: dict[str, int], others: Sequence[str] = ()
) -> dict[str, Any]:
    """Green contexts for slices of a GPU, by the name of their device.

    Those of `others`, which are devices of other programs, are cut as well, and left to them.
    """
    own = [name for name in sms if name not in others]
    if not own:
        return {}
    try:
        made = split_gpu(Calls(), ordinal, list(sms.values()), [[*sms].index(n) for n in own])
    except RuntimeError as problem:
        asked = " + ".join(map(str, sms.values()))
        raise SystemExit(f"a GPU cannot be cut into {asked} SMs: {problem}") from None
    return dict(zip(own, (green for green, _ in made), strict=True))


def open_devices(targets: dict[str, str], transfers: int, split_gpu: SplitGpu) -> None:
    """Every device on its GPU (`cuda:0`) or on a slice of it (`cuda:0:84sm`)."""
    check(cuda.cuInit(0))
    slices: dict[int, dict[str, int]] = {}
    for name, target in targets.items():
        match = re.fullmatch(r"cuda:(\d+)(?::(\d+)sm)?", target)
        if match is None or (match[2] and not int(match[2])):
            raise SystemExit(f"{target} is no CUDA device")
        slices.setdefault(int(match[1]), {})[name] = int(match[2] or 0)
    for ordinal, sms in slices.items():
        own = [name for name in sms if name in Device.all]
        if not own:
            continue
        gpu = check(cuda.cuDeviceGet(ordinal))
        context = check(cuda.cuDevicePrimaryCtxRetain(gpu))
        check(cuda.cuCtxSetCurrent(context))
        parts = {name: count for name, count in sms.items() if count}
        greens = cut(split_gpu, ordinal, parts, [name for name in sms if name not in own])
        for name in own:
            Device.all[name].open(context, greens.get(name), transfers)


def main(
    plan: PlanTables,
    programs: Programs,
    split_gpu: SplitGpu,
) -> None:
    """Serve requests and write what they leave."""
    parser = argparse.ArgumentParser(description="Run the plan with cuda-python alone.")
    parser.add_argument(
        "--data",
        help="weights and states by name (`NAME@SEQUENCE` for one sequence), "
        "and what outputs and temps begin with",
    )
    parser.add_argument("--inputs", help="inputs by name (`NAME@REQUEST` for one request)")
    parser.add_argument("--outputs", help="write outputs (`NAME@REQUEST`) and states there")
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--trace", type=int, default=0, choices=range(len(plan["traces"])))
    parser.add_argument("--map", default="", help="DEVICE=cuda:0:84sm,...")
    given = parser.parse_args()
    if MISSING:
        sys.exit(MISSING)
    check_outputs(given.outputs, (given.data, given.inputs))
    targets = dict(plan["targets"])
    for part in filter(None, given.map.split(",")):
        device, equals, target = part.partition("=")
        if not equals or device not in targets:
            raise SystemExit(f"`{part}` in --map names none of: {', '.join(targets)}")
        targets[device] = target
    known = {name for buffers in plan["traces"] for name in buffers}
    data, inputs = load(given.data, known), load(given.inputs, known)
    open_devices(targets, plan["transfers"], split_gpu)
    fill_memory(plan, data)
    results = serve(plan, programs, inputs, data, given.requests, given.trace)
    results |= read_states(plan, data)
    if given.outputs:
        np.savez(given.outputs, **results)


def check_outputs(path: str | None, inputs: tuple[str | None, ...]) -> None:
    """Refuse to write over what is read."""
    if path is None:
        return
    place = path if path.endswith(".npz") else f"{path}.npz"
    for given in filter(None, inputs):
        there = os.path.exists(place) and os.path.exists(given)
        if there and os.path.samefile(place, given):
            raise SystemExit(f"{place} is an input of this program")


def load(path: str | None, known: set[str]) -> Arrays:
    """The arrays of a file by name, which has to be that of a buffer."""
    if path is None:
        return {}
    try:
        arrays = dict(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as problem:
        raise SystemExit(f"{path} is no .npz file that can be read: {problem}") from None
    for name in arrays:
        if name not in known and name.rpartition("@")[0] not in known:
            raise SystemExit(f"`{name}` in {path} is no buffer of the plan")
    return arrays


def bytes_of(given: Arrays, name: str, which: int, size: int) -> Any:
    """The bytes of a buffer for one request or sequence, or for all; zeros if not given."""
    key = f"{name}@{which}" if f"{name}@{which}" in given else name
    if key not in given:
        return np.zeros(size, np.uint8)
    content = np.ascontiguousarray(given[key]).reshape(-1).view(np.uint8)
    if content.nbytes != size:
        raise SystemExit(f"`{key}` is given {content.nbytes} bytes, and takes {size}")
    return content.copy()


def serve(
    plan: PlanTables,
    programs: Programs,
    inputs: Arrays,
    data: Arrays,
    count: int,
    trace: int,
) -> Arrays:
    """Requests one after the other, as many at a time as there are slots."""
    slots, lanes = plan["slots"], plan["lanes"]
    buffers = plan["traces"][trace]
    hosts = [
        {
            name: pinned(size)
            for name, (role, size) in buffers.items()
            if role in ("input", "output")
        }
        for _ in range(slots)
    ]
    begin = {
        name: pinned(size)
        for name, (role, size) in buffers.items()
        if role in ("output", "temp") and name in data
    }
    for name, (_, content) in begin.items():
        size = buffers[name][1]
        content[:size] = bytes_of(data, name, 0, size)
    results: Arrays = {}
    flying: dict[int, Request] = {}

    def collect(slot: int) -> None:
        request = flying.pop(slot)
        for device in Device.all.values():
            device.finish(slot)
        for name, (role, size) in buffers.items():
            if role == "output":
                results[f"{name}@{request.number}"] = request.host[name][1][:size].copy()

    for number in range(count):
        slot, lane = number % slots, number % lanes
        for busy in [s for s, r in flying.items() if s == slot or r.lane == lane]:
            collect(busy)
        request = Request(number, trace, slot, lane, hosts[slot], begin)
        for name, (role, size) in buffers.items():
            if role == "input":
                hosts[slot][name][1][:size] = bytes_of(inputs, name, number, size)
            elif role == "output":
                hosts[slot][name][1][:] = begin[name][1] if name in begin else POISON
                for offset in plan["pointers"][trace].get(name, ()):
                    hosts[slot][name][1][offset : offset + 8] = 0
        write_words(plan, trace, slot, lane, kinds=("slot", "lane"), again=True)
        hand_over(
            [
                queue(Device.all[name], request)
                for name in Device.all
                for queue in programs[name][trace]
            ]
        )
        flying[slot] = request
    for slot in list(flying):
        collect(slot)
    return results


def hand_over(queues: list[Iterator[tuple[int, int]]]) -> None:
    """All queues of a request: each goes on until it needs a word that nobody writes yet."""
    needs = [(queue, next(queue, None)) for queue in queues]
    waiting = {queue: need for queue, need in needs if need is not None}
    while waiting:
        ready = [
            queue
            for queue, (word, value) in waiting.items()
            if Device.handed_over.get(word, 0) >= value
        ]
        if not ready:
            raise SystemExit("the queues wait for each other")
        for queue in ready:
            need = next(queue, None)
            if need is None:
                del waiting[queue]
            else:
                waiting[queue] = need


def fill_memory(plan: PlanTables, data: Arrays) -> None:
    """Weights and states, before the first request."""
    for trace, buffers in enumerate(plan["traces"]):
        for device in Device.all.values():
            for name, (kind, _) in device.places[trace].items():
                role, size = buffers[name]
                if kind == "weights" or (role == "weight" and kind == "slot"):
                    for slot in range(plan["slots"] if kind == "slot" else 1):
                        content = bytes_of(data, name, 0, size)
                        device.write(device.address(trace, slot, 0, name), content)
                elif kind == "lane":
                    for lane in range(plan["lanes"]):
                        content = bytes_of(data, name, lane, size)
                        device.write(device.address(trace, 0, lane, name), content)
        for lane in range(plan["lanes"]):
            write_words(plan, trace, 0, lane, kinds=("weights", "lane"))
    for device in Device.all.values():
        device.settle()


def write_words(
    plan: PlanTables,
    trace: int,
    slot: int,
    lane: int,
    kinds: tuple[str, ...],
    again: bool = False,
) -> None:
    """The words of buffers that are addresses; each device has its own.

    States carry words that a step has overwritten, so they are written `again` only where they
    differ from request to request.
    """
    for name, words in plan["pointers"][trace].items():
        fixed = plan["slots"] == 1 and sum(name in buffers for buffers in plan["traces"]) == 1
        for device in Device.all.values():
            place = device.places[trace].get(name)
            if place is None or place[0] not in kinds or (again and fixed and place[0] == "lane"):
                continue
            base = device.address(trace, slot, lane, name)
            for offset, (target, into) in words.items():
                value = device.address(trace, slot, lane, target) + into
                device.write(base + offset, np.frombuffer(u64(value), np.uint8))
            device.settle()


def read_states(plan: PlanTables, data: Arrays) -> Arrays:
    """The states of every sequence, from the devices that have them."""
    states = {}
    for trace, buffers in enumerate(plan["traces"]):
        for name, (role, size) in buffers.items():
            if role != "state":
                continue
            for lane in range(plan["lanes"]):
                content = bytes_of(data, name, lane, size)
                for device, start, end in plan["homes"][trace].get(name, ()):
                    base = Device.all[device].address(trace, 0, lane, name)
                    content[start:end] = Device.all[device].read(base + start, end - start)
                states[f"{name}@{lane}"] = content
    return states
