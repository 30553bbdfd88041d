"""Code that emitted programs share, as `common.py` beside them. Needs cuda-python and NumPy.

`main` reads the command line and the files, opens the devices on their GPUs, fills their memory,
serves the requests and writes their results. The program of a device says what it does for a
request, as calls of `Device` methods.

A device has three streams per slot: compute, in and out. Every program function hands one request
to one of them, in order. `record` records an event on a stream, and `wait` lets a stream wait for
an event. A transfer has two events: `ready`, which the receiver records when the bytes may be sent,
and `arrived`, which the sender records when they have arrived.

A stream waits for the last recording of an event, so a wait may be enqueued only after the
recording that it means. The functions are therefore generators: they name the event that they need
(`yield from d.wait(...)`), and continue when it has been recorded for this request.

Longer than 400 lines because it is copied beside programs as one file.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

MISSING = "this program needs the packages `cuda-python` and `numpy`"
try:
    import numpy as np

    from tessera.backend.cuda.api import Driver, bindings, host_view
    from tessera.backend.cuda.call_structures import copy_2d, launch_config, pack
    from tessera.backend.cuda.slices import split_gpu
except ModuleNotFoundError as problem:  # `--help` needs neither package
    np = None  # type: ignore[assignment]
    MISSING += f": {problem}"

HERE = Path(__file__).parent
POISON = 0xCB
LIMIT_S = 60.0
NOWHERE = 0x1CB << 44  # for pointers to buffers that a device does not have
QUEUES = ("compute", "in", "out")
Pieces = list[tuple[int, int, int, int]]  # start, width, pitch, rows
PlanTables = dict[str, Any]  # `PLAN` of `run.py`
Programs = dict[str, dict[int, tuple[Any, Any, Any]]]  # functions of queues, by device and trace
Arrays = dict[str, Any]
Need = tuple[tuple[Any, ...], int]  # an event, and the number of the request that needs it


def u32(value: int) -> bytes:
    """A 32-bit argument of a kernel."""
    return bits(4, value)


def bits(size: int, value: int) -> bytes:
    """A kernel argument of any type, given by its bits."""
    return value.to_bytes(size, "little")


@dataclass
class Request:
    """One request: its slot and lane, and its inputs and outputs in pinned memory.

    `host` has the address and the array of each buffer by name; `begin` has the same for outputs
    and temps that have initial contents. It stands in for `Request` of `backend.service`, in a
    program without Tessera.
    """

    number: int
    trace: int
    slot: int
    lane: int
    host: dict[str, tuple[int, Any]]
    begin: dict[str, tuple[int, Any]]


class Device:
    """A GPU or a slice of a GPU, with the memory, modules and streams of the plan.

    It stands in for `Device` of `ir.plan.machine`, in a program without Tessera.
    """

    driver: ClassVar[Driver]
    all: ClassVar[dict[str, Device]] = {}
    recorded: ClassVar[dict[tuple[Any, ...], int]] = {}  # by event: the last request

    def __init__(
        self,
        name: str,
        areas: dict[str, tuple[int, int]],
        places: dict[int, dict[str, tuple[str, int]]],
        modules: dict[str, str],
        slots: int,
        held: dict[int, dict[str, tuple[int, int]]] | None = None,
    ) -> None:
        self.name, self.areas, self.places = name, areas, places
        self.modules, self.slots, self.held = modules, slots, held or {}
        Device.all[name] = self

    def open(self, context: Any, green: Any) -> None:
        """Load modules, allocate memory, make streams."""
        self.context, self.events = context, dict[tuple[Any, ...], Any]()
        driver = self.use()
        files = {name: (HERE / file).read_bytes() for name, file in self.modules.items()}
        self.loaded = {name: driver.load(text) for name, text in files.items()}
        self.bases = {}
        for kind, (size, count) in self.areas.items():
            self.bases[kind] = driver.allocate(max(size * count, 1))
            driver.fill(self.bases[kind], POISON, size * count)
        lowest, highest = driver.priorities()
        self.streams = {
            (slot, queue): driver.stream(lowest if queue == "compute" else highest, green)
            for slot in range(self.slots)
            for queue in QUEUES
        }

    def use(self) -> Driver:
        """The driver, after making the context of this device current."""
        self.driver.use(self.context)
        return self.driver

    # --- places --------------------------------------------------------------------------------

    def address(self, trace: int, slot: int, lane: int, name: str) -> int:
        """The address of byte 0 of a buffer; `held` says which bytes are there, if not all."""
        kind, offset = self.places[trace].get(name, ("", 0))
        if kind == "module":
            module, _, symbol = name.rpartition(".")
            return self.driver.variable(self.loaded[f"{trace}:{module}"], symbol)
        copy = {"weights": 0, "lane": lane, "slot": slot}.get(kind)
        return NOWHERE if copy is None else self.bases[kind] + copy * self.areas[kind][0] + offset

    def of(self, r: Request, name: str) -> int:
        """The address of a buffer of a request."""
        return self.address(r.trace, r.slot, r.lane, name)

    def argument(self, r: Request, value: Any) -> bytes:
        """The bytes of an argument: plain bytes, a pointer, or a struct that contains pointers."""
        if isinstance(value, bytes):
            return value
        first, second = value
        if isinstance(first, str):
            return bits(8, self.of(r, first) + second)
        data = bytearray(first)
        for offset, pointer in second.items():
            data[offset : offset + 8] = self.argument(r, pointer)
        return bytes(data)

    # --- operations of queues ------------------------------------------------------------------

    def launch(
        self,
        r: Request,
        module: str,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        args: list[Any],
        cluster: tuple[int, int, int] | None = None,
        cooperative: bool = False,
    ) -> None:
        """Launch a kernel on the compute queue."""
        driver, stream = self.use(), self.streams[r.slot, "compute"]
        function = driver.function(self.loaded[f"{r.trace}:{module}"], kernel)
        if shared:
            driver.allow_shared(function, shared)
        packed = pack([self.argument(r, value) for value in args])
        if cluster is None and not cooperative:
            sizes = (*grid, *block, shared, stream)
            driver.call("cuLaunchKernel", function, *sizes, packed.address, 0)
            return
        if cluster is not None and np.prod(cluster) > 8:
            driver.allow_large_clusters(function)
        config = launch_config(driver, grid, block, shared, stream, cluster, cooperative)
        driver.call("cuLaunchKernelEx", config, function, packed.address, 0)

    def memset(
        self, r: Request, name: str, offset: int, value: int, element_bytes: int, count: int
    ) -> None:
        """Set elements of a buffer on the compute queue."""
        target, stream = self.of(r, name) + offset, self.streams[r.slot, "compute"]
        if count:
            self.use().call(f"cuMemsetD{8 * element_bytes}Async", target, value, count, stream)

    def memcpy(
        self, r: Request, target: str, into: int, source: str, start: int, size: int
    ) -> None:
        """Copy bytes between two buffers on the compute queue."""
        addresses = self.of(r, target) + into, self.of(r, source) + start
        self._copy(r, "compute", *addresses, [(0, size, 0, 1)])

    def fill(self, r: Request, name: str, ranges: list[tuple[int, int]]) -> None:
        """Write the initial contents of a buffer."""
        for start, end in ranges:
            if name in r.begin:
                pieces = [(start, end - start, 0, 1)]
                self._copy(r, "compute", self.of(r, name), r.begin[name][0], pieces)
            else:
                self.memset(r, name, start, POISON, 1, end - start)

    def record(self, r: Request, queue: str, *event: Any) -> None:
        """Record an event: the queue has reached this point."""
        driver, key = self.use(), (self.name, r.slot, *event)
        if key not in self.events:
            self.events[key] = driver.event()
        driver.record(self.events[key], self.streams[r.slot, queue])
        Device.recorded[key] = r.number

    def wait(self, r: Request, queue: str, *event: Any) -> Iterator[Need]:
        """Let a queue wait for an event."""
        yield from self._await(r, queue, self, event)

    def _await(self, r: Request, queue: str, by: Device, event: tuple[Any, ...]) -> Iterator[Need]:
        key = (by.name, r.slot, *event)
        yield key, r.number
        self.use().wait(self.streams[r.slot, queue], by.events[key])

    def send(
        self, r: Request, transfer: int, target: str, portions: dict[str, Pieces]
    ) -> Iterator[Need]:
        """Copy pieces of buffers to another device."""
        other = Device.all[target]
        yield from self._await(r, "out", other, ("ready", transfer))
        for name, pieces in portions.items():
            self._copy(r, "out", other.of(r, name), self.of(r, name), pieces)
        self.record(r, "out", "arrived", transfer)

    def receive(self, r: Request, transfer: int, source: str) -> Iterator[Need]:
        """Allow a transfer to be sent, and let the queue wait until it has arrived."""
        self.record(r, "in", "ready", transfer)
        yield from self._await(r, "in", Device.all[source], ("arrived", transfer))

    def receive_from_host(self, r: Request, name: str, pieces: Pieces) -> None:
        """Copy pieces of an input from the host."""
        self._copy(r, "in", self.of(r, name), r.host[name][0], pieces)

    def send_to_host(self, r: Request, name: str, pieces: Pieces) -> None:
        """Copy pieces of an output to the host."""
        self._copy(r, "out", r.host[name][0], self.of(r, name), pieces)

    def _copy(self, r: Request, queue: str, target: int, source: int, pieces: Pieces) -> None:
        driver, stream = self.use(), self.streams[r.slot, queue]
        for start, width, pitch, rows in pieces:
            to, origin = target + start, source + start
            if rows == 1:
                driver.call("cuMemcpyAsync", to, origin, width, stream)
            else:
                described = copy_2d(driver, to, pitch, origin, pitch, width, rows)
                driver.call("cuMemcpy2DAsync", described, stream)

    def finish(self, slot: int) -> None:
        """Wait until the streams of a slot are empty, up to a time limit."""
        driver, limit = self.use(), time.monotonic() + LIMIT_S
        for queue in QUEUES:
            while not driver.is_idle(self.streams[slot, queue]):
                if time.monotonic() > limit:
                    sys.stderr.write(f"{self.name}: the {queue} queue does not end\n")
                    sys.stderr.flush()
                    os._exit(1)  # the only exit that does not wait for the GPU


def pinned(size: int) -> tuple[int, Any]:
    """The address and the array of new pinned host memory."""
    address = Device.driver.allocate_host(max(size, 1))
    return address, host_view(address, max(size, 1))


# --- requests --------------------------------------------------------------------------------


def main(plan: PlanTables, programs: Programs) -> None:
    """Serve requests and write their results."""
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
    try:
        if np is None:
            sys.exit(MISSING)
        Device.driver = Driver(bindings())
    except ModuleNotFoundError as problem:
        sys.exit(f"{MISSING}: {problem}")
    check_outputs(given.outputs, (given.data, given.inputs))
    targets = dict(plan["targets"])
    for part in filter(None, given.map.split(",")):
        device, equals, target = part.partition("=")
        if not equals or device not in targets:
            raise SystemExit(f"`{part}` in --map names none of: {', '.join(targets)}")
        targets[device] = target
    known = {name for buffers in plan["traces"] for name in buffers}
    data, inputs = load(given.data, known), load(given.inputs, known)
    Device.driver.initialise()
    open_devices(targets)
    fill_memory(plan, data)
    results = serve(plan, programs, inputs, data, given.requests, given.trace)
    results |= read_states(plan, data)
    if given.outputs:
        np.savez(given.outputs, **results)


def open_devices(targets: dict[str, str]) -> None:
    """Open every device on its GPU (`cuda:0`) or on a slice of a GPU (`cuda:0:84sm`)."""
    slices: dict[int, dict[str, int]] = {}
    for name, target in targets.items():
        match = re.fullmatch(r"cuda:(\d+)(?::(\d+)sm)?", target)
        if match is None or (match[2] and not int(match[2])):
            raise SystemExit(f"{target} is no CUDA device")
        slices.setdefault(int(match[1]), {})[name] = int(match[2] or 0)
    for ordinal, sms in slices.items():
        own = [name for name in sms if name in Device.all]
        if own:
            context = Device.driver.retain(ordinal)
            Device.driver.use(context)
            parts = {name: count for name, count in sms.items() if count}
            greens = cut(ordinal, parts, [name for name in sms if name not in own])
            for name in own:
                Device.all[name].open(context, greens.get(name))


def cut(ordinal: int, sms: dict[str, int], others: Sequence[str] = ()) -> dict[str, Any]:
    """Green contexts for slices of a GPU, by device name.

    The slices of `others`, which are devices of other programs, are part of the cut but get no
    context here.
    """
    own = [name for name in sms if name not in others]
    try:
        wanted = [[*sms].index(name) for name in own]
        made = split_gpu(Device.driver, ordinal, list(sms.values()), wanted) if own else ()
    except (RuntimeError, Device.driver.failure) as problem:
        asked = " + ".join(map(str, sms.values()))
        raise SystemExit(f"a GPU cannot be cut into {asked} SMs: {problem}") from None
    return dict(zip(own, (green for green, _ in made), strict=True))


def check_outputs(path: str | None, inputs: tuple[str | None, ...]) -> None:
    """Refuse to overwrite files that are read."""
    place = "" if path is None else path if path.endswith(".npz") else f"{path}.npz"
    for given in filter(None, inputs):
        there = os.path.exists(place) and os.path.exists(given)
        if there and os.path.samefile(place, given):
            raise SystemExit(f"{place} is an input of this program")


def load(path: str | None, known: set[str]) -> Arrays:
    """The arrays of a file by name; every name has to be that of a buffer."""
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
    """The bytes of a buffer for one request or sequence, or shared by all; zeros if not given."""
    key = f"{name}@{which}" if f"{name}@{which}" in given else name
    if key not in given:
        return np.zeros(size, np.uint8)
    content = np.ascontiguousarray(given[key]).reshape(-1).view(np.uint8)
    if content.nbytes != size:
        raise SystemExit(f"`{key}` is given {content.nbytes} bytes, and takes {size}")
    return content.copy()


def serve(
    plan: PlanTables, programs: Programs, inputs: Arrays, data: Arrays, count: int, trace: int
) -> Arrays:
    """Serve requests in order, as many at a time as there are slots."""
    buffers = plan["traces"][trace]
    staged = {n: size for n, (role, size) in buffers.items() if role in ("input", "output")}
    hosts = [{n: pinned(size) for n, size in staged.items()} for _ in range(plan["slots"])]
    begin = {}
    for name, (role, size) in buffers.items():
        if role in ("output", "temp") and name in data:
            begin[name] = pinned(size)
            begin[name][1][:size] = bytes_of(data, name, 0, size)
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
        slot, lane = number % plan["slots"], number % plan["lanes"]
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
        devices = Device.all.values()
        hand_over([queue(d, request) for d in devices for queue in programs[d.name][trace]])
        flying[slot] = request
    for slot in list(flying):
        collect(slot)
    return results


def hand_over(queues: list[Iterator[Need]]) -> None:
    """Hand over all queues of a request, each until it needs an event that is not yet recorded."""
    waiting = {queue: need for queue in queues if (need := next(queue, None)) is not None}
    while waiting:
        ready = [
            q for q, (event, number) in waiting.items() if Device.recorded.get(event) == number
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
    """Write weights and states before the first request."""
    for trace, buffers in enumerate(plan["traces"]):
        for device in Device.all.values():
            for name, (kind, _) in device.places[trace].items():
                role, size = buffers[name]
                # A copy for every slot or every sequence, if the place has such copies.
                slots = range(plan["slots"] if kind == "slot" else 1)
                lanes = range(plan["lanes"] if kind == "lane" else 1)
                for slot, lane in [(slot, lane) for slot in slots for lane in lanes]:
                    if role == "weight" or kind in ("weights", "lane"):
                        first, end = device.held.get(trace, {}).get(name, (0, size))
                        content = bytes_of(data, name, lane, size)[first:end]
                        write(device, device.address(trace, slot, lane, name) + first, content)
        for lane in range(plan["lanes"]):
            write_words(plan, trace, 0, lane, kinds=("weights", "lane"))
    for device in Device.all.values():
        device.use().settle()


def write(device: Device, address: int, content: Any) -> None:
    """Fill device memory from the host; `settle` waits for it, streams of queues do not."""
    device.use().upload(address, np.ascontiguousarray(content).reshape(-1).view(np.uint8))


def write_words(
    plan: PlanTables,
    trace: int,
    slot: int,
    lane: int,
    kinds: tuple[str, ...],
    again: bool = False,
) -> None:
    """Write the address words of buffers; each device has its own addresses.

    States keep words that a step has overwritten, so words of states are written `again` only if
    they differ from request to request.
    """
    for name, words in plan["pointers"][trace].items():
        fixed = plan["slots"] == 1 and sum(name in buffers for buffers in plan["traces"]) == 1
        for device in Device.all.values():
            kind, _ = device.places[trace].get(name, ("", 0))
            if kind not in kinds or (again and fixed and kind == "lane"):
                continue
            base = device.address(trace, slot, lane, name)
            for offset, (target, into) in words.items():
                value = device.address(trace, slot, lane, target) + into
                write(device, base + offset, np.array([value], np.uint64))
            device.use().settle()


def read_states(plan: PlanTables, data: Arrays) -> Arrays:
    """The states of every sequence, from the devices that hold them."""
    states = {}
    for trace, buffers in enumerate(plan["traces"]):
        for name in [name for name, (role, _) in buffers.items() if role == "state"]:
            for lane in range(plan["lanes"]):
                content = bytes_of(data, name, lane, buffers[name][1])
                for home, start, end in plan["homes"][trace].get(name, ()):
                    device = Device.all[home]
                    address = device.address(trace, 0, lane, name) + start
                    content[start:end] = device.use().download(address, end - start)
                states[f"{name}@{lane}"] = content
    return states
