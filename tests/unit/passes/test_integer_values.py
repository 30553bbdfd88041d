"""What analyses say of integer instructions is what the executor computes, at the corners.

`lane_ops` (through `planning/prices/integer_values`) is held against the CPU backend, which shares
no code with it: every form of the opcode table that it knows, on numbers at the edges of registers,
shift amounts past the width and fields past the top bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest

from tessera.ir.opcodes import OperandRole, is_type, meaning, type_bits
from tessera.ir.opcodes.families import arithmetic, logic
from tessera.ir.opcodes.form_table import forms_of
from tessera.ir.opcodes.notation import read_table
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_bits import extract_field
from tessera.passes.lane_values.lane_ops import source_bits
from tessera.planning.prices.integer_values import integer_function, value_of
from tests.helpers.cpu_kernels import run

CASES = 2048  # of a name, shared by its forms
SLOTS = 8  # 64-bit words for one form in one thread: the sources, and the result in the last one
REGISTERS = {1: "%p", 16: "%rs", 32: "%r", 64: "%rd"}
TABLES = (0x00, 0x1E, 0x80, 0x96, 0xCA, 0xFF)
UNKNOWN = {"div", "rem", "sad"}


def spellings(name: str) -> Iterator[ptx.Opcode]:
    """Every opcode that the forms of a name have, with optional modifiers and without."""
    for form in dict.fromkeys((*forms_of(ptx.Opcode(name)), *dotted_forms(name))):
        slots = [sorted(s.choices) + ([""] if s.is_optional else []) for s in form.slots]
        for chosen in product(*slots):
            words = (*form.name[1:], *(word for word in chosen if word))
            opcode = ptx.Opcode(name, words)
            if not form.is_open and integer_function(opcode) is not None:
                yield opcode


def dotted_forms(name: str) -> Iterator:
    # The longest name counts: of these opcodes the part belongs to it.
    for part in ("lo", "hi", "wide", "l", "r"):
        yield from forms_of(ptx.Opcode(name, (part,)))


def sources(opcode: ptx.Opcode) -> list[int] | None:
    """The bits of each source, 0 for a constant; None where there are other operands."""
    if {"v2", "v4"} & set(opcode.modifiers):
        return None
    for count in range(2, 7):
        means = meaning(opcode, count)
        if means is not None and means.fits:
            break
    else:
        return None
    bits = type_bits(types(opcode)[-1])
    widths = []
    for place, role in enumerate(means.roles[1:]):
        if role is OperandRole.PREDICATE:
            widths.append(1)
        elif role is OperandRole.IMMEDIATE:
            widths.append(0)
        else:
            widths.append(source_bits(opcode, place, bits))
    return widths if set(widths) <= {0, 1, 8, 16, 32, 64} else None


def types(opcode: ptx.Opcode) -> list[str]:
    return [m for m in opcode.modifiers if is_type(m)]


def result_bits(opcode: ptx.Opcode) -> int:
    if opcode.name in ("popc", "clz", "bfind"):
        return 32
    if opcode.name == "setp":
        return 1
    if opcode.name in ("set", "cvt"):
        return type_bits(types(opcode)[0])
    bits = type_bits(types(opcode)[-1])
    return 2 * bits if "wide" in opcode.modifiers else bits


def corners(bits: int) -> list[int]:
    near = (0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 256, 65535, 65536, 65568)
    top = 1 << (bits - 1)
    edges = (top - 2, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 0x5A3C96E10F872DB4)
    return sorted({number & (2 * top - 1) for number in (*near, *edges)})


def draw(opcode: ptx.Opcode, widths: list[int], threads: int) -> np.ndarray:
    """The sources of each thread."""
    source = random.Random(str(opcode))
    table = source.choice(TABLES)
    choices = [corners(bits) if bits else [table] for bits in widths]
    drawn = [[source.choice(numbers) for numbers in choices] for _ in range(threads)]
    return np.array(drawn, dtype=np.uint64)


def read(bits: int, place: int, slot: int) -> tuple[str, str]:
    """Instructions that read a source, and the register that holds it."""
    at = f"[%rd2+{8 * slot}]"
    if bits == 1:
        return f"ld.global.u32 %r{10 + place}, {at}; setp.ne.u32 %p{place}, %r{10 + place}, 0;", (
            f"%p{place}"
        )
    # Registers of 8 bits do not exist: cvt takes the low byte of a wider one.
    held = max(bits, 16)
    register = f"{REGISTERS[held]}{10 + place}"
    return f"ld.global.u{held} {register}, {at};", register


def block(opcode: ptx.Opcode, widths: list[int], table: int, first: int) -> str:
    lines, operands = [], []
    for place, bits in enumerate(widths):
        if bits == 0:
            operands.append(str(table))
            continue
        line, register = read(bits, place, first + place)
        lines.append(line)
        operands.append(register)
    bits = result_bits(opcode)
    target = f"{REGISTERS[max(bits, 16) if bits > 1 else 1]}9"
    lines.append(f"{opcode} {target}, {', '.join(operands)};")
    if bits == 1:
        lines.append(f"selp.u64 %rd9, 1, 0, {target};")
    elif bits < 64:
        lines.append(f"cvt.u64.u{max(bits, 16)} %rd9, {target};")
    lines.append(f"st.global.u64 [%rd2+{8 * (first + SLOTS - 1)}], %rd9;")
    return "\n".join(lines)


def executed(forms: list[tuple[ptx.Opcode, list[int]]]) -> Iterator[tuple[ptx.Opcode, list, int]]:
    """Each form with the numbers that it was given and the bits that the executor made of them."""
    threads = min(256, max(16, CASES // len(forms)))
    given = np.zeros((threads, len(forms), SLOTS), dtype=np.uint64)
    blocks = []
    for place, (opcode, widths) in enumerate(forms):
        numbers = draw(opcode, widths, threads)
        given[:, place, : len(widths)] = numbers
        table = int(numbers[0][widths.index(0)]) if 0 in widths else 0
        blocks.append(block(opcode, widths, table, SLOTS * place))
    stride = 8 * SLOTS * len(forms)
    body = f"mad.wide.u32 %rd2, %r3, {stride}, %rd1;\n" + "\n".join(blocks)
    out, _ = run(body, block=threads, initial=given.ravel(), dtype=np.uint64)
    made = out.view(np.uint64).reshape(given.shape)
    for place, (opcode, widths) in enumerate(forms):
        for thread in range(threads):
            numbers = [int(number) for number in given[thread, place, : len(widths)]]
            yield opcode, numbers, int(made[thread, place, SLOTS - 1])


def forms_with_sources(name: str) -> list[tuple[ptx.Opcode, list[int]]]:
    forms = {opcode: sources(opcode) for opcode in spellings(name)}
    return [(opcode, widths) for opcode, widths in forms.items() if widths]


TABLED = {row.name[0] for table in (arithmetic.TABLE, logic.TABLE) for row in read_table(table)}
NAMES = sorted(name for name in TABLED | {"mov", "prmt", "cvt"} if forms_with_sources(name))


def test_the_table_has_the_integer_instructions() -> None:
    assert {"add", "mad", "shl", "bfe", "bfi", "prmt", "lop3", "shf", "setp", "cvt"} <= set(NAMES)
    assert len(NAMES) >= 29


@pytest.mark.parametrize("name", NAMES)
def test_analyses_compute_what_the_executor_does(name: str) -> None:
    known = 0
    for opcode, numbers, made in executed(forms_with_sources(name)):
        value = value_of(opcode, tuple(numbers))
        if value is None:
            assert name in UNKNOWN or differs_on_a_gpu(opcode, numbers), opcode
            continue
        bits = max(16, result_bits(opcode)) if result_bits(opcode) > 1 else 1
        assert value & ((1 << bits) - 1) == made, (str(opcode), numbers)
        known += 1
    assert known > 100 or name == "sad"
    value_of.cache_clear()


@pytest.mark.parametrize(
    ("text", "numbers", "result"),
    [
        # PTX ISA 9.7.8.7: amounts above the register width are clamped to it.
        ("shl.b16", (1, 16), 0),
        ("shl.b16", (0xFFFF, 0xFFFF), 0),
        ("shl.b16", (1, 15), 0x8000),
        ("shl.b32", (1, 64), 0),
        ("shr.u64", (1 << 63, 64), 0),
        # PTX ISA 9.7.1.20: bits past the top are copies of the sign of the last one inside.
        ("bfe.s32", (0x80000000, 28, 16), 0xFFFFFFF8),
        ("bfe.s64", (1 << 63, 60, 200), (1 << 64) - 8),
        ("bfe.s32", (0x7FFFFFFF, 28, 16), 7),
        ("bfe.s32", (0x80000000, 40, 0), 0),
    ],
)
def test_past_the_top_bit(text: str, numbers: tuple[int, ...], result: int) -> None:
    name, *modifiers = text.split(".")
    assert value_of(ptx.Opcode(name, tuple(modifiers)), numbers) == result


def differs_on_a_gpu(opcode: ptx.Opcode, numbers: Sequence[int]) -> bool:
    """Whether an H200 did something other than the ISA says (`constants_gpu.json`)."""
    if opcode.name == "mad" and "hi" in opcode.modifiers:
        return numbers[2] != 0
    if opcode.name == "mad" and opcode.modifiers[0] == "lo" and opcode.modifiers[-1][1:] == "64":
        return numbers[2] in numbers[:2] and numbers[2] != 0 and numbers[2] % 256 == 0
    if opcode.name == "sub" and opcode.modifiers[-1][1:] == "16":
        return numbers[0] & 0xFFFF == 0 and numbers[1] & 0xFFFF == 0x8000
    if opcode.name == "abs" or str(opcode) == "neg.s16":
        bits = int(opcode.modifiers[-1][1:])
        return numbers[0] & ((1 << bits) - 1) == 1 << (bits - 1)
    if str(opcode) == "cvt.s64.u32":
        return numbers[0] & 0xFFFFFFFF >= 1 << 31
    if opcode.name in {"shl", "shr"} and opcode.modifiers[0][1:] == "16":
        return numbers[1] >= 1 << 16
    if opcode.name == "shl":
        return opcode.modifiers[0] == "b64" and numbers[1] >= 64
    if opcode.name == "prmt":
        return numbers[2] & 0x8888 != 0
    if opcode.name == "lop3":
        return len(set(numbers[:3])) < 3
    if opcode.name not in {"bfe", "bfi"}:
        return False
    bits, (start, length) = int(opcode.modifiers[-1][1:]), numbers[-2:]
    if bits == 64 and max(start, length) > 255:
        return True
    start, length = start & 0xFF, length & 0xFF
    if opcode.name == "bfe":
        return str(opcode) == "bfe.s32" and start >= 32
    return length > bits or (length == bits and start > 0)


@pytest.mark.parametrize(
    ("text", "numbers", "result"),
    [
        ("bfe.u64", (0x3786CD, 1, 8), 0x66),
        ("bfe.u64", (0x3786CD, 1, 0x100), None),  # an H200: 0x1BC366, the ISA: 0
        ("bfe.s64", (1, 0x31D200, 90), None),
        ("bfe.u32", (0x3786CD, 0x101, 0x108), 0x66),
        ("bfi.b64", (1, 7, 0x102, 4), None),
        ("bfi.b64", (1, 7, 32, 32), (1 << 32) + 7),
        ("bfi.b32", (48, 7, 5, 33), None),  # ptxas 13.0: 7, the ISA: 0x607
        ("bfi.b32", (48, 7, 1, 32), None),
        ("bfi.b32", (48, 7, 0, 32), 48),
        ("bfi.b32", (48, 7, 5, 31), 0x607),
        ("mad.hi.u32", (48, 7, 3), None),  # ptxas 13.0: 2 in a kernel with several constants
        ("mad.hi.u32", (1 << 31, 8, 0), 4),
        ("cvt.s64.u32", (1 << 31,), None),  # -1 << 31, if ptxas sees a shift behind it
        ("cvt.s64.u32", ((1 << 31) - 1,), (1 << 31) - 1),
        ("cvt.u64.u32", (1 << 31,), 1 << 31),
        ("abs.s16", (0x8000,), None),  # ptxas 13.0: 32,768, if a conversion or a product follows
        ("neg.s16", (0x8000,), None),
        ("neg.s16", (1,), 0xFFFF),
        ("abs.s32", (1 << 31,), None),
        ("neg.s32", (1 << 31,), 1 << 31),
        ("sub.s16", (0, 0x8000), None),
        ("sub.s16", (0, 1), 0xFFFF),
        ("mad.lo.s64", (3 << 31, 2, 3 << 31), None),  # ptxas 13.0 without the upper half
        ("mad.lo.s64", (3 << 31, 2, 5 << 31), 11 << 31),
        ("mad.lo.s64", (0, 2, 0), 0),
        ("shl.b16", (1, 1 << 16), None),  # ptxas: 1
        ("shr.u16", (4, 0x80000000), None),
        ("shl.b64", (1, 64), None),  # of a product or a choice, ptxas: 1
        ("prmt.b32", (0xAD0000, 0, 0x000A), None),
        ("prmt.b32", (0xAD0000, 0, 0x0002), 0xAD),
        ("lop3.b32", (48, 48, 48, 21), None),
        ("lop3.b32", (48, 7, 1, 0x80), 0),
    ],
)
def test_what_gpus_compute_otherwise_is_unknown(
    text: str, numbers: tuple[int, ...], result: int | None
) -> None:
    name, *modifiers = text.split(".")
    assert value_of(ptx.Opcode(name, tuple(modifiers)), numbers) == result


@pytest.mark.parametrize("start", [32, 40, 255])
@pytest.mark.parametrize("number", [0, 255, 0x80000000])
def test_ptxas_makes_minus_one_of_a_signed_field_past_the_top(start: int, number: int) -> None:
    """The ISA has copies of the sign bit; either may be what the GPU computes."""
    assert value_of(ptx.Opcode("bfe", ("s32",)), (number, start, 28)) is None
    found = extract_field([lanes.scalar(n) for n in (number, start, 28)], 32, signed=True)
    assert {0, 0xFFFFFFFF} == {(int(found.low()[0, 0]) + n) & 0xFFFFFFFF for n in range(2)}
    assert found.span is not None
    assert int(found.span[0, 0]) == 1
    assert value_of(ptx.Opcode("bfe", ("s64",)), (number, max(start, 64), 28)) == 0
    assert value_of(ptx.Opcode("bfe", ("s32",)), (number, start, 0)) == 0
