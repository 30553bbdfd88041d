"""A plan as Python programs that need only cuda-python: one readable, runnable file per device.

In: a lowered replica and its traces. Out: files by name: a program per device (a function per trace
and queue), the PTX of every module, `run.py`, which starts them in one process, and the shared
files: `common.py` and the modules of the backend that it imports. The programs make the calls of
the backend one by one, without graphs. Functions are generators, so that no wait is enqueued before
the event that it means has been recorded. An argument is a number, a pointer `(BUFFER, OFFSET)`, or
the bytes of a struct with the pointers that it contains.

The programs do not include the contents of buffers; `run.py --help` says how to pass them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any, assert_never

from tessera.backend.cuda.byte_pieces import pieces_of
from tessera.backend.cuda.modules import steps_on
from tessera.backend.cuda.queued_work import (
    CopyCall,
    KernelCall,
    OperatorCall,
    SetCall,
    describe_step,
)
from tessera.backend.service import Model, ServedTrace
from tessera.diagnostics import TesseraError, error
from tessera.ir.plan import launch_program as lp
from tessera.ir.plan.launch_program import HOST, LoweredReplica, LoweredTrace, Queue
from tessera.ir.program import program as ir

WRITTEN_BY = "Written by `tessc plan --emit cuda-python`, which may replace this file."
_MARKS = {".py": "#", ".ptx": "//"}
_FUNCTIONS = {Queue.COMPUTE: "compute", Queue.IN: "copy_in", Queue.OUT: "copy_out"}
_HERE = Path(__file__).parent
_SHARED = (
    _HERE / "common.py",
    *(_HERE.parent / name for name in ("api.py", "call_structures.py", "slices.py")),
)
_RUN = '''"""Run the plan, all devices in this process: `python run.py --help` says how."""

import os

# Transfers must not wait behind kernels in a hardware queue (the driver makes 8 by default), and no
# kernel may be loaded while requests run.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
import common  # noqa: E402
{imports}

# Slots and lanes: how many; GPUs; by trace: role and bytes of buffers, where states are between
# requests, and the words of buffers that are addresses.
PLAN = {plan}

if __name__ == "__main__":
    common.main(PLAN, {{{programs}}})
'''


def emit_python(
    lowered: LoweredReplica, traces: Sequence[ServedTrace], targets: Mapping[str, str]
) -> dict[str, str]:
    """The files of a plan's programs; `targets` has the GPU or slice of each device.

    `targets` includes devices of other replicas, because slices of one GPU must not overlap.
    """
    emitter = _ScriptEmitter(lowered, traces)
    files = {f"{name}.py": emitter.device(device) for device, name in emitter.names.items()}
    files["run.py"] = emitter.run(targets)
    files |= shared_files() | emitter.modules
    return {n: f"{_MARKS[Path(n).suffix]} {WRITTEN_BY}\n{text}" for n, text in files.items()}


def shared_files() -> dict[str, str]:
    """The files that all programs share; imports use the names of the files there."""
    return {
        path.name: re.sub(r"from tessera[\w.]*\.(\w+) import", r"from \1 import", path.read_text())
        for path in _SHARED
    }


class _ScriptEmitter:
    def __init__(self, lowered: LoweredReplica, traces: Sequence[ServedTrace]) -> None:
        self.lowered = lowered
        self.traces = traces
        self.modules: dict[str, str] = {}
        self.names = {
            device: f"device_{i}_{_plain(device)}" for i, device in enumerate(lowered.devices)
        }

    def device(self, device: str) -> str:
        """The program of a device."""
        tables = {
            "name": device,
            "areas": {  # size in bytes, and number of copies
                area.kind.value: (area.bytes, area.count)
                for area in self.lowered.areas
                if area.device == device and area.kind is not lp.AreaKind.MODULE
            },
            "places": {trace.trace: self._places(trace, device) for trace in self.lowered.traces},
            "modules": self._modules(device),
            "slots": self.lowered.slots,
        }
        held = {trace.trace: self._held(trace, device) for trace in self.lowered.traces}
        if any(held.values()):
            tables["held"] = held
        rows = [f"    {name}={_text(value)}," for name, value in tables.items()]
        parts = [
            f'"""Device `{_said(device)}` of the plan: what its queues do for one request."""\n',
            "from collections.abc import Iterator\n",
            "from common import Device, Need, Request, bits, u32  # noqa: F401\n",
            "\n".join(["DEVICE = Device(", *rows, ")\n"]),
        ]
        for trace in self.lowered.traces:
            for queue in _FUNCTIONS:
                parts.append("\n" + self._function(queue, trace, device))
        table = {
            t.trace: [f"{n}_{t.trace}" for n in _FUNCTIONS.values()] for t in self.lowered.traces
        }
        named = ", ".join(f"{trace}: ({', '.join(names)})" for trace, names in table.items())
        return "\n".join([*parts, f"\nPROGRAMS = {{{named}}}\n"])

    def _places(self, trace: LoweredTrace, device: str) -> dict[str, tuple[str, int]]:
        """Area and offset by buffer; the offset of byte 0, which need not be there."""
        buffers = self.traces[trace.trace].program.buffers
        return {
            buffers[place.buffer].name: (place.kind.value, place.base)
            for place in self.lowered.places
            if (place.trace, place.device) == (trace.trace, device)
        }

    def _held(self, trace: LoweredTrace, device: str) -> dict[str, tuple[int, int]]:
        """The bytes that are there, of the buffers that are not whole."""
        buffers = self.traces[trace.trace].program.buffers
        held = {
            buffers[place.buffer]: place.held(buffers[place.buffer].bytes)
            for place in self.lowered.places
            if (place.trace, place.device) == (trace.trace, device)
        }
        return {b.name: span for b, span in held.items() if span != (0, b.bytes)}

    def _modules(self, device: str) -> dict[str, str]:
        """The modules that a device runs, and the names of their PTX files."""
        model = Model(
            lowered=self.lowered, traces=tuple(self.traces), weights={}, states=[], fillings=[]
        )
        files: dict[str, str] = {}
        for trace, step, arch in steps_on(model, device):
            if isinstance(step, ir.Launch):
                module = self.traces[trace].program.modules[step.module]
                files[f"{trace}:{module.name}"] = self._ptx(module, arch)
        return files

    def _ptx(self, module: ir.ProgramModule, arch: str) -> str:
        variant = module.variant(arch)
        assert variant is not None
        base = f"{_plain(module.name)}.{arch.replace(':', '_')}"
        name, number = f"{base}.ptx", 1
        while self.modules.get(name, variant.text) != variant.text:
            number += 1
            name = f"{base}.{number}.ptx"
        self.modules[name] = variant.text
        return name

    def _function(self, queue: Queue, trace: LoweredTrace, device: str) -> str:
        """The function of a queue for one request."""
        label = _said(self.traces[trace.trace].name)
        lines = [
            f"def {_FUNCTIONS[queue]}_{trace.trace}(d: Device, r: Request) -> Iterator[Need]:",
            f'    """The {queue.value} queue, for one request of trace `{label}`."""',
        ]
        for program in trace.programs:
            for operation in program.on(queue) if program.device == device else ():
                for method, *given in self._calls(operation, queue, trace):
                    start = "yield from " if method in ("wait", "send", "receive") else ""
                    arguments = ", ".join(["r", *map(_text, given)])
                    lines.append(f"    {start}d.{method}({arguments})")
        # Makes the function a generator even if it has no wait.
        return "\n".join([*lines, "    yield from ()"]) + "\n"

    def _calls(
        self, operation: lp.Operation, queue: Queue, trace: LoweredTrace
    ) -> Iterator[tuple[Any, ...]]:
        """The calls of an operation: a method of `Device`, and its arguments after the request."""
        served = self.traces[trace.trace]
        buffers = served.program.buffers
        match operation:
            case lp.Run(step):
                work = tuple(served.program.work())[step]
                yield _step(served.program, work, served.arches[step])
            case lp.Fill(buffer, ranges):
                yield "fill", buffers[buffer].name, [*ranges]
            case lp.Free():
                return
            case lp.Record(event):
                yield "record", queue.value, int(event)
            case lp.Await(event):
                yield "wait", queue.value, int(event)
            case lp.Send(number):
                moved = trace.transfers[number]
                pieces = {buffers[p.buffer].name: _pieces(p.bytes) for p in moved.portions}
                if moved.target == HOST:
                    yield "send_to_host", *next(iter(pieces.items()))
                else:
                    yield "send", int(number), moved.target, pieces
            case lp.Receive(number):
                moved = trace.transfers[number]
                if moved.source == HOST:
                    (own,) = moved.portions
                    yield "receive_from_host", buffers[own.buffer].name, _pieces(own.bytes)
                else:
                    yield "receive", int(number), moved.source
            case lp.Put() | lp.AwaitPut() | lp.Credit():
                raise AssertionError("an emitted program is of one host and has no landings")
            case _:
                assert_never(operation)

    def run(self, targets: Mapping[str, str]) -> str:
        """The program that starts all devices."""
        homes: list[dict[str, list[tuple[str, int, int]]]] = [{} for _ in self.traces]
        for home in self.lowered.homes:
            buffer = self.traces[home.trace].program.buffers[home.buffer]
            if buffer.role is ir.Role.STATE:
                rows = homes[home.trace].setdefault(buffer.name, [])
                rows.extend((home.device, start, end) for start, end in home.bytes)
        programs = [served.program for served in self.traces]
        plan = {
            "slots": self.lowered.slots,
            "lanes": self.lowered.lanes,
            "targets": {d: f"cuda:{i}" for i, d in enumerate(self.lowered.devices)} | {**targets},
            "traces": [{b.name: (b.role.value, b.bytes) for b in p.buffers} for p in programs],
            "homes": homes,
            "pointers": [_words(program) for program in programs],
        }
        return _RUN.format(
            imports="\n".join(f"import {name}" for name in self.names.values()),
            plan=_text(plan),
            programs=", ".join(f"{d!r}: {name}.PROGRAMS" for d, name in self.names.items()),
        )


class _PythonText(str):
    """A part of a program that is written verbatim."""

    __repr__ = str.__str__


def _step(program: ir.Program, step: ir.Work, arch: str) -> tuple[Any, ...]:
    """The call for a step."""
    match describe_step(step, arch):
        case KernelCall(launch=launch, module=module):
            more = [launch.cluster, launch.cooperative] if launch.cooperative else [launch.cluster]
            return (
                *("launch", program.modules[module].name, launch.kernel),
                *(launch.grid, launch.block, launch.shared_bytes),
                [_argument(program, argument) for argument in launch.arguments],
                *(more if launch.cluster or launch.cooperative else ()),
            )
        case SetCall(target=to, value=value, element_bytes=element_bytes, count=count):
            return "memset", *_pointer(program, to), value, element_bytes, count
        case CopyCall(target=to, source=source, size=size):
            return "memcpy", *_pointer(program, to), *_pointer(program, source), size
        case OperatorCall(call):
            problem = error(
                "TSR5001",
                f"the operator `{call.operator}` cannot be written with cuda-python alone",
                call.span,
                hint="run the plan with `tessc run`, which calls PyTorch",
            )
            raise TesseraError(problem)
        case _ as never:
            assert_never(never)


def _argument(program: ir.Program, argument: ir.Argument) -> object:
    match argument:
        case ir.Pointer():
            return _pointer(program, argument)
        case ir.Scalar():
            if argument.type.value == "u32":
                return _PythonText(f"u32({argument.bits})")
            return _PythonText(f"bits({argument.type.bytes}, {argument.bits:#x})")
        case ir.ByValue():
            words = {word.offset: _pointer(program, word.target) for word in argument.pointers}
            return argument.content, words
        case _:
            assert_never(argument)


def _pointer(program: ir.Program, pointer: ir.Pointer) -> tuple[str, int]:
    return program.buffers[pointer.buffer].name, pointer.offset


def _words(program: ir.Program) -> dict[str, dict[int, tuple[str, int]]]:
    return {
        program.buffers[table.buffer].name: {
            word.offset: _pointer(program, word.target) for word in table.words
        }
        for table in program.pointer_tables
    }


def _pieces(ranges: lp.Bytes) -> list[tuple[int, int, int, int]]:
    return [(piece.start, piece.width, piece.pitch, piece.rows) for piece in pieces_of(ranges)]


def _text(value: object) -> str:
    """A value as Python source, in lines of readable length."""
    return pformat(value, width=90, compact=True, sort_dicts=False)


def _said(name: str) -> str:
    """A name for a comment or docstring, which it must not end: files may have any name."""
    return re.sub(r"[^\w$.,:/ -]", "_", name)


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)
