"""A `Program` as the text of a trace: `frontend.trace.read_trace` reads it back to an equal
program.

Order: version, buffers, resident, routing, modules with their variants, pointer tables, steps. The
PTX of a module is its text as it was read, so that its lines stay where its author knows them. Keys
are written in one order and defaults are left out. Module variables have no record: their modules
declare them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import assert_never

from tessera.ir.architecture import sms_of
from tessera.ir.program.program import (
    DEFAULT_STREAM,
    Argument,
    Buffer,
    ByValue,
    Event,
    EventId,
    Launch,
    LaunchVariant,
    LibraryCall,
    Memcpy,
    Memset,
    Notes,
    Operand,
    Pointer,
    PointerTable,
    PointerWord,
    Program,
    ProgramModule,
    Scalar,
    Step,
    Wait,
)
from tessera.ir.program.scalar_text import scalar_text
from tessera.ir.text_digest import text_digest

# The oldest version that is enough is written: the second has code for a number of SMs, the third a
# law of routing.
VERSIONS = ("1", "2", "3")


def print_program(program: Program, *, with_notes: bool = True) -> str:
    """The text of the trace, with a final newline.

    Without notes it is the text by which plans and profiles know a trace.
    """
    return "".join(_lines(program, _notes if with_notes else _no_notes))


def program_digest(program: Program) -> str:
    """The digest by which plans, graphs and profiles know a trace."""
    return text_digest(print_program(program, with_notes=False))


def _notes(notes: Notes) -> str:
    return "".join(f" {key}={text}" for key, text in notes)


def _no_notes(notes: Notes) -> str:
    return ""


def _lines(program: Program, noted: Callable[[Notes], str]) -> Iterator[str]:
    tuned = any(sms_of(v.arch) for module in program.modules for v in module.variants)
    version = VERSIONS[2 if program.routing is not None else tuned]
    yield f"//! tessera.trace {version}{noted(program.notes)}\n"
    for buffer in program.declared_buffers():
        yield f"//! {_buffer(buffer)}{noted(buffer.notes)}\n"
    if program.resident is not None:
        yield f"//! resident data={program.resident}\n"
    if program.routing is not None:
        yield f"//! routing law={program.routing}\n"
    yield from _modules(program.modules, noted)
    for table in program.pointer_tables:
        yield f"//! {_pointer_table(program, table)}\n"
    events = {event.id: event.name for event in program.events()}
    for step in program.steps:
        yield f"//! {_step(program, step, events)}{noted(step.notes)}\n"
        if isinstance(step, Launch):
            for variant in step.variants:
                yield f"//! {_launch_variant(program, variant)}{noted(variant.notes)}\n"


def _modules(modules: Sequence[ProgramModule], noted: Callable[[Notes], str]) -> Iterator[str]:
    for module in modules:
        for index, variant in enumerate(module.variants):
            is_said = index or sms_of(variant.arch)
            arch = f" arch={variant.arch}" if is_said else ""
            yield f"//! module {module.name}{arch}{noted(variant.notes)}\n"
            # A record must start its line, regardless of the origin of this text.
            yield variant.text if variant.text.endswith("\n") else variant.text + "\n"


def _buffer(buffer: Buffer) -> str:
    fields = [f"buffer {buffer.name} bytes={buffer.bytes} role={buffer.role.value}"]
    if buffer.dtype is not None:
        fields.append(f"dtype={buffer.dtype.value}")
    if buffer.shape is not None:
        fields.append("shape=" + "x".join(map(str, buffer.shape)))
    return " ".join(fields)


def _pointer_table(program: Program, table: PointerTable) -> str:
    return f"pointers {program.buffers[table.buffer].name} {_words(program, table.words)}"


def _step(program: Program, step: Step, events: Mapping[EventId, str]) -> str:
    match step:
        case Launch():
            text = _launch(program, step)
        case Memset():
            text = f"memset {address_text(program, step.target)} bytes={step.bytes}"
            if step.element_bytes != 1:
                text += f" element_bytes={step.element_bytes}"
            text += f" value=0x{step.value:0{2 * step.element_bytes}x}"
        case Memcpy():
            target, source = (address_text(program, p) for p in (step.target, step.source))
            text = f"memcpy {target} {source} bytes={step.bytes}"
        case LibraryCall():
            text = _library_call(program, step)
        case Event():
            text = f"event {step.name}"
        case Wait():
            text = f"wait {events[step.event]}"
        case _:
            assert_never(step)
    return text if step.stream == DEFAULT_STREAM else f"{text} stream={step.stream}"


def _launch(program: Program, launch: Launch) -> str:
    fields = [f"launch {program.modules[launch.module].name}.{launch.kernel}"]
    fields += _dimensions(launch)
    fields.append(f"smem={launch.shared_bytes}")
    if launch.cooperative:
        fields.append("cooperative=1")
    if launch.work is not None:
        parts = (*map(str, launch.work.sizes), launch.work.dtype.value)
        fields.append(f"work={launch.work.kind}:{','.join(parts)}")
    fields.append(f"args={arguments_text(program, launch.arguments)}")
    return " ".join(fields)


def _launch_variant(program: Program, variant: LaunchVariant) -> str:
    fields = [f"variant {variant.arch}", *_dimensions(variant)]
    if variant.shared_bytes is not None:
        fields.append(f"smem={variant.shared_bytes}")
    if variant.arguments is not None:
        fields.append(f"args={arguments_text(program, variant.arguments)}")
    return " ".join(fields)


def _dimensions(launch: Launch | LaunchVariant) -> list[str]:
    named = (("grid", launch.grid), ("block", launch.block), ("cluster", launch.cluster))
    return [f"{key}={x[0]},{x[1]},{x[2]}" for key, x in named if x is not None]


def _library_call(program: Program, call: LibraryCall) -> str:
    reads = ", ".join(_operand(program, operand) for operand in call.reads)
    writes = ", ".join(_operand(program, operand) for operand in call.writes)
    attributes = json.dumps(dict(call.attributes))
    return f"op {call.operator} reads=[{reads}] writes=[{writes}] attrs={attributes}"


def _operand(program: Program, operand: Operand) -> str:
    shape = ",".join(map(str, operand.shape))
    text = f"{address_text(program, operand.pointer)}:{operand.dtype.value}[{shape}]"
    if operand.strides is None:
        return text
    return text + "{" + ",".join(map(str, operand.strides)) + "}"


def arguments_text(program: Program, arguments: Sequence[Argument]) -> str:
    """`[x, y+64, u32:7]`."""
    return "[" + ", ".join(argument_text(program, a) for a in arguments) + "]"


def argument_text(program: Program, argument: Argument) -> str:
    """One argument of a launch."""
    match argument:
        case Pointer():
            return address_text(program, argument)
        case Scalar():
            return f"{argument.type.value}:{scalar_text(argument.type, argument.bits)}"
        case ByValue():
            words = _words(program, argument.pointers) if argument.pointers else ""
            return f"b8[{len(argument.content)}]:{argument.content.hex()}{words}"
        case _:
            assert_never(argument)


def address_text(program: Program, pointer: Pointer) -> str:
    """`BUFFER` or `BUFFER+BYTES`."""
    name = program.buffers[pointer.buffer].name
    return f"{name}+{pointer.offset}" if pointer.offset else name


def _words(program: Program, words: Sequence[PointerWord]) -> str:
    entries = (f"{word.offset}:{address_text(program, word.target)}" for word in words)
    return "@{" + ",".join(entries) + "}"
