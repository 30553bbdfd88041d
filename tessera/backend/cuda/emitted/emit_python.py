"""A plan as Python programs that need cuda-python alone: one file per device, to read and to run.

In: a lowered replica and its traces. Out: files by name: a program per device (a function per trace
and queue), the PTX of every module, `common.py`, `serve.py` and `slices.py`, which all share, and
`run.py`, which starts them in one process. They do what the backend does, call by call, without
graphs: devices find each other through words in pinned memory that streams write and wait for.
Functions are generators, so that nothing waits for what is handed over later.

Contents of buffers are not part of it; `run.py --help` says how to give them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import assert_never

from tessera.backend.cuda.byte_pieces import pieces_of
from tessera.backend.cuda.emitted.shared_files import shared_files
from tessera.backend.cuda.queued_work import (
    CopyCall,
    KernelCall,
    OperatorCall,
    SetCall,
    describe_step,
)
from tessera.backend.service import ServedTrace
from tessera.diagnostics import TesseraError, error
from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceProgram,
    Fill,
    Free,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
)
from tessera.ir.program.program import (
    Argument,
    ByValue,
    Launch,
    Pointer,
    Program,
    ProgramModule,
    Role,
    Scalar,
    Work,
)
from tessera.ir.program.scalar_text import scalar_text

WRITTEN_BY = "Written by `tessc plan --emit cuda-python`, which may replace this file."
_MARKS = {".py": "#", ".ptx": "//"}
_FUNCTIONS = {Queue.COMPUTE: "compute", Queue.IN: "copy_in", Queue.OUT: "copy_out"}
# A stream that waits must not share a hardware queue with the one it waits for.
_MOST_STREAMS = 32


def emit_python(
    lowered: LoweredReplica, traces: Sequence[ServedTrace], targets: Mapping[str, str]
) -> dict[str, str]:
    """The files of a plan's programs; `targets` says which GPU or slice each device is.

    Those of other replicas are among them: slices of one GPU must be apart, whoever opens them.
    """
    return _ScriptEmitter(lowered, traces, targets).files()


class _ScriptEmitter:
    def __init__(
        self, lowered: LoweredReplica, traces: Sequence[ServedTrace], targets: Mapping[str, str]
    ) -> None:
        self.lowered = lowered
        self.traces = traces
        self.targets = targets
        self.slots = min(lowered.slots, max(_MOST_STREAMS // (3 * len(lowered.devices)), 1))
        self.modules: dict[str, str] = {}
        self.names = {
            device: f"device_{i}_{_plain(device)}" for i, device in enumerate(lowered.devices)
        }

    def files(self) -> dict[str, str]:
        """All files, in the order in which to read them."""
        files = {f"{self.names[d]}.py": self._device(d) for d in self.lowered.devices}
        files["run.py"] = self._run()
        files |= shared_files()
        files |= self.modules
        return {
            name: f"{_MARKS[Path(name).suffix]} {WRITTEN_BY}\n{text}"
            for name, text in files.items()
        }

    # --- a device ----------------------------------------------------------------------------

    def _device(self, device: str) -> str:
        modules = self._module_files(device)
        parts = [
            f'"""Device `{_said(device)}` of the plan: what its queues do for one request."""\n',
            "from collections.abc import Iterator\n",
            "from common import Device, Request, bits, by_value, u32, u64  # noqa: F401\n",
            "DEVICE = Device(",
            f"    name={device!r},",
            f"    areas={self._areas(device)!r},  # bytes, and how many copies",
            f"    places={self._places(device)},",
            f"    modules={modules!r},",
            f"    events={self._events(device)},",
            f"    slots={self.slots},",
            ")\n",
        ]
        table = []
        for trace in self.lowered.traces:
            functions = []
            program = next((p for p in trace.programs if p.device == device), None)
            for queue, name in _FUNCTIONS.items():
                function = f"{name}_{trace.trace}"
                functions.append(function)
                parts.append("\n" + self._function(function, queue, trace, device, program))
            table.append(f"{trace.trace}: ({', '.join(functions)})")
        parts.append(f"\nPROGRAMS = {{{', '.join(table)}}}\n")
        return "\n".join(parts)

    def _function(
        self,
        name: str,
        queue: Queue,
        trace: LoweredTrace,
        device: str,
        program: DeviceProgram | None,
    ) -> str:
        label = _said(self.traces[trace.trace].name)
        lines = [
            f"def {name}(d: Device, r: Request) -> Iterator[tuple[int, int]]:",
            f'    """The {queue.value} queue, for one request of trace `{label}`."""',
        ]
        operations = tuple(program.on(queue)) if program is not None else ()
        body = [
            line
            for operation in operations
            for line in self._operation(operation, queue, trace, device)
        ]
        body.append("yield from ()")  # a generator also where nothing waits
        return "\n".join([*lines, *(f"    {line}" for line in body)]) + "\n"

    def _operation(
        self, operation: Operation, queue: Queue, trace: LoweredTrace, device: str
    ) -> Iterator[str]:
        program = self.traces[trace.trace].program
        match operation:
            case Run(step):
                work = tuple(program.work())[step]
                yield from self._step(work, trace.trace)
            case Fill(buffer, ranges):
                yield f"d.fill(r, {program.buffers[buffer].name!r}, {[*ranges]!r})"
            case Free(buffer):
                yield f"# nothing later touches {program.buffers[buffer].name!r} here"
            case Record(event):
                yield f'd.record(r, "{queue.value}", {event})'
            case Await(event):
                yield f'yield from d.wait(r, "{queue.value}", {event})'
            case Send(number):
                yield self._send(trace, number)
            case Receive(number):
                yield self._receive(trace, number)
            case Put() | AwaitPut() | Credit():
                raise AssertionError("an emitted program is of one host and has no landings")
            case _:
                assert_never(operation)

    def _send(self, trace: LoweredTrace, number: int) -> str:
        transfer = trace.transfers[number]
        name = self.traces[trace.trace].program.buffers[transfer.buffer].name
        pieces = _pieces(transfer.bytes)
        if transfer.target == HOST:
            return f"d.send_to_host(r, {name!r}, {pieces})"
        return f"yield from d.send(r, {number}, {name!r}, {transfer.target!r}, {pieces})"

    def _receive(self, trace: LoweredTrace, number: int) -> str:
        transfer = trace.transfers[number]
        name = self.traces[trace.trace].program.buffers[transfer.buffer].name
        if transfer.source == HOST:
            return f"d.receive_from_host(r, {name!r}, {_pieces(transfer.bytes)})"
        return f"yield from d.receive(r, {number})  # {_said(name)} from {_said(transfer.source)}"

    # --- steps -------------------------------------------------------------------------------

    def _step(self, step: Work, trace: int) -> Iterator[str]:
        served = self.traces[trace]
        program = served.program
        match describe_step(step, served.arches[step.id]):
            case KernelCall() as call:
                yield from self._launch(program, call)
            case SetCall() as call:
                name = program.buffers[call.target.buffer].name
                yield (
                    f"d.memset(r, {name!r}, {call.target.offset}, {call.value:#x}, "
                    f"{call.element_bytes}, {call.count})"
                )
            case CopyCall() as call:
                ends = (call.target, call.source)
                target, source = (f"{program.buffers[p.buffer].name!r}, {p.offset}" for p in ends)
                yield f"d.memcpy(r, {target}, {source}, {call.size})"
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

    def _launch(self, program: Program, call: KernelCall) -> Iterator[str]:
        launch = call.launch
        module = program.modules[call.module]
        yield "d.launch("
        yield f"    r, {module.name!r}, {launch.kernel!r},  # step {call.step}"
        yield f"    {launch.grid}, {launch.block}, {launch.shared_bytes},"
        yield "    ["
        for argument in call.arguments:
            yield f"        {_argument(program, argument)}"
        yield "    ],"
        if launch.cluster is not None:
            yield f"    cluster={launch.cluster},"
        if launch.cooperative:
            yield "    cooperative=True,"
        yield ")"

    # --- tables ------------------------------------------------------------------------------

    def _module_files(self, device: str) -> dict[str, str]:
        """The modules that a device runs, and the files with their PTX."""
        files: dict[str, str] = {}
        for trace in self.lowered.traces:
            served = self.traces[trace.trace]
            work = tuple(served.program.work())
            for program in trace.programs:
                for queued in program.operations if program.device == device else ():
                    if not isinstance(queued.operation, Run):
                        continue
                    step = work[queued.operation.step]
                    if isinstance(step, Launch):
                        module = served.program.modules[step.module]
                        arch = served.arches[step.id]
                        files[f"{trace.trace}:{module.name}"] = self._ptx(module, arch)
        return files

    def _ptx(self, module: ProgramModule, arch: str) -> str:
        variant = module.variant(arch)
        assert variant is not None
        base = f"{_plain(module.name)}.{arch.replace(':', '_')}"
        name, number = f"{base}.ptx", 1
        while self.modules.get(name, variant.text) != variant.text:
            number += 1
            name = f"{base}.{number}.ptx"
        self.modules[name] = variant.text
        return name

    def _areas(self, device: str) -> dict[str, tuple[int, int]]:
        return {
            area.kind.value: (area.bytes, area.count)
            for area in self.lowered.areas
            if area.device == device and area.kind is not AreaKind.MODULE
        }

    def _places(self, device: str) -> str:
        """By trace and buffer: area and offset. A line per buffer."""
        lines = ["{"]
        for trace in self.lowered.traces:
            program = self.traces[trace.trace].program
            lines.append(f"        {trace.trace}: {{")
            for place in self.lowered.places:
                if (place.trace, place.device) == (trace.trace, device):
                    name = program.buffers[place.buffer].name
                    lines.append(f"            {name!r}: ({place.kind.value!r}, {place.offset}),")
            lines.append("        },")
        return "\n".join([*lines, "    }"])

    def _events(self, device: str) -> int:
        return 1 + max(
            (
                int(queued.operation.event)
                for trace in self.lowered.traces
                for program in trace.programs
                if program.device == device
                for queued in program.operations
                if isinstance(queued.operation, Record)
            ),
            default=-1,
        )

    # --- run.py ------------------------------------------------------------------------------

    def _run(self) -> str:
        lowered = self.lowered
        tables = []
        for served in self.traces:
            rows = [
                f"        {b.name!r}: ({b.role.value!r}, {b.bytes}),"
                for b in served.program.buffers
            ]
            tables.append("\n".join(["    {", *rows, "    },"]))
        homes: list[dict[str, list[tuple[str, int, int]]]] = [{} for _ in self.traces]
        for home in lowered.homes:
            buffer = self.traces[home.trace].program.buffers[home.buffer]
            if buffer.role is Role.STATE:
                rows_of = homes[home.trace].setdefault(buffer.name, [])
                rows_of.extend((home.device, start, end) for start, end in home.bytes)
        named = {d: f"cuda:{i}" for i, d in enumerate(lowered.devices)}
        targets = {**named, **self.targets}
        transfers = max((len(trace.transfers) for trace in lowered.traces), default=0)
        modules = "\n".join(f"import {name}" for name in self.names.values())
        programs = ", ".join(f"{d!r}: {name}.PROGRAMS" for d, name in self.names.items())
        buffers = "\n".join(tables)
        return f'''"""Run the plan, all devices in this process: `python run.py --help` says how."""

import os

# Streams that wait for each other must not share a hardware queue (the driver makes 8 by default),
# and no kernel may be loaded while a stream waits.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
import serve  # noqa: E402
import slices  # noqa: E402
{modules}

TRACES = [
{buffers}
]
PLAN = {{
    "slots": {self.slots},  # requests at a time
    "lanes": {lowered.lanes},
    "transfers": {transfers},
    "targets": {targets!r},
    "traces": TRACES,  # role and bytes of every buffer
    "homes": {homes!r},  # where states are between requests
    "pointers": {[_words(served.program) for served in self.traces]!r},
}}

if __name__ == "__main__":
    serve.main(PLAN, {{{programs}}}, slices.split_gpu)
'''


def _words(program: Program) -> dict[str, dict[int, tuple[str, int]]]:
    return {
        program.buffers[table.buffer].name: {
            word.offset: (program.buffers[word.target.buffer].name, word.target.offset)
            for word in table.words
        }
        for table in program.pointer_tables
    }


def _argument(program: Program, argument: Argument) -> str:
    match argument:
        case Pointer():
            return f"{_at(program, argument)},"
        case Scalar(type=kind, bits=value):
            if kind.value == "u32":
                return f"u32({value}),"
            text = f"{kind.value}:{scalar_text(kind, value)}"
            return f"bits({kind.bytes}, {value:#x}),  # {text}"
        case ByValue():
            words = ", ".join(f"{w.offset}: {_at(program, w.target)}" for w in argument.pointers)
            return f"by_value({argument.content.hex()!r}, {{{words}}}),"
        case _:
            assert_never(argument)


def _at(program: Program, pointer: Pointer) -> str:
    name = program.buffers[pointer.buffer].name
    return f"d.at(r, {name!r}, {pointer.offset})" if pointer.offset else f"d.at(r, {name!r})"


def _pieces(ranges: Bytes) -> str:
    pieces = [(p.start, p.width, p.pitch, p.rows) for p in pieces_of(ranges)]
    return repr(pieces)


def _said(name: str) -> str:
    """A name for a comment or a docstring, which it must not end: files may have any name."""
    return re.sub(r"[^\w$.,:/ -]", "_", name)


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)
