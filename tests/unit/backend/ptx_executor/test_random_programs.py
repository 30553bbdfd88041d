"""Random structured kernels against an interpreter that runs one thread at a time.

Programs are nested lists: assignments, guarded assignments, branches, loops with bounds that
depend on data, early exits, and loads and stores of the thread's own words. Threads only touch
their own memory, so any schedule must give the interpreter's result.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.helpers.cpu_kernels import run
from tests.helpers.share import share

REGISTERS = 5
WORDS = 4
OPERATIONS = {
    "add.u32": lambda a, b: (a + b) & 0xFFFFFFFF,
    "sub.u32": lambda a, b: (a - b) & 0xFFFFFFFF,
    "mul.lo.u32": lambda a, b: (a * b) & 0xFFFFFFFF,
    "xor.b32": lambda a, b: a ^ b,
    "and.b32": lambda a, b: a & b,
    "shr.u32": lambda a, b: a >> min(b, 32),
    "min.u32": min,
}


class Exit(Exception):
    pass


def generate(source: random.Random, depth: int, length: int) -> list:
    program = []
    for _ in range(source.randint(1, length)):
        kind = source.random()
        target, a, b = (source.randrange(REGISTERS) for _ in range(3))
        limit = source.choice([3, 50, 1000, 1 << 31])
        if kind < 0.35 or depth == 0:
            op = source.choice(list(OPERATIONS))
            program.append(("set", target, op, a, source.choice([("r", b), ("k", limit % 97)])))
        elif kind < 0.45:
            op = source.choice(list(OPERATIONS))
            program.append(("guarded", target, op, a, ("r", b), source.randrange(REGISTERS), limit))
        elif kind < 0.65:
            then = generate(source, depth - 1, length)
            other = generate(source, depth - 1, length) if source.random() < 0.6 else []
            program.append(("if", a, limit, then, other))
        elif kind < 0.8:
            program.append(("loop", a, source.randint(1, 6), generate(source, depth - 1, length)))
        elif kind < 0.88:
            program.append(("store", a, source.randrange(WORDS)))
        elif kind < 0.96:
            program.append(("load", target, source.randrange(WORDS)))
        else:
            program.append(("exit", a, source.choice([1, 7])))
    return program


class Compiler:
    """Programs to PTX: register i is %r<10 + i>, loop counters are %r30 and up."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.labels = 0

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def operand(self, operand: tuple) -> str:
        return f"%r{10 + operand[1]}" if operand[0] == "r" else str(operand[1])

    def emit(self, program: list, depth: int = 0) -> None:
        for statement in program:
            getattr(self, statement[0] + "_")(*statement[1:], depth)

    def set_(self, target, op, a, b, depth) -> None:
        self.lines.append(f"{op} %r{10 + target}, %r{10 + a}, {self.operand(b)};")

    def guarded_(self, target, op, a, b, test, limit, depth) -> None:
        self.lines.append(f"setp.lt.u32 %p1, %r{10 + test}, {limit};")
        self.lines.append(f"@%p1 {op} %r{10 + target}, %r{10 + a}, {self.operand(b)};")

    def if_(self, a, limit, then, other, depth) -> None:
        otherwise, end = self.label(), self.label()
        self.lines.append(f"setp.ge.u32 %p1, %r{10 + a}, {limit};")
        self.lines.append(f"@%p1 bra {otherwise};")
        self.emit(then, depth)
        self.lines.append(f"bra {end};\n{otherwise}:")
        self.emit(other, depth)
        self.lines.append(f"{end}:")

    def loop_(self, a, most, body, depth) -> None:
        head, end = self.label(), self.label()
        counter = f"%r{30 + depth}"
        self.lines.append(f"rem.u32 {counter}, %r{10 + a}, {most + 1};\n{head}:")
        self.lines.append(f"setp.eq.u32 %p1, {counter}, 0;\n@%p1 bra {end};")
        self.emit(body, depth + 1)
        self.lines.append(f"sub.u32 {counter}, {counter}, 1;\nbra {head};\n{end}:")

    def store_(self, a, word, depth) -> None:
        self.lines.append(f"st.global.u32 [%rd5+{4 * word}], %r{10 + a};")

    def load_(self, target, word, depth) -> None:
        self.lines.append(f"ld.global.u32 %r{10 + target}, [%rd5+{4 * word}];")

    def exit_(self, a, divisor, depth) -> None:
        self.lines.append(f"rem.u32 %r29, %r{10 + a}, {divisor};\nsetp.eq.u32 %p1, %r29, 3;")
        self.lines.append("@%p1 exit;")


def interpret(program: list, registers: list, memory: list) -> None:
    for statement in program:
        match statement:
            case ("set", target, op, a, b):
                registers[target] = OPERATIONS[op](registers[a], value(b, registers))
            case ("guarded", target, op, a, b, test, limit):
                if registers[test] < limit:
                    registers[target] = OPERATIONS[op](registers[a], value(b, registers))
            case ("if", a, limit, then, other):
                interpret(then if registers[a] < limit else other, registers, memory)
            case ("loop", a, most, body):
                for _ in range(registers[a] % (most + 1)):
                    interpret(body, registers, memory)
            case ("store", a, word):
                memory[word] = registers[a]
            case ("load", target, word):
                registers[target] = memory[word]
            case ("exit", a, divisor):
                if registers[a] % divisor == 3:
                    raise Exit


def value(operand: tuple, registers: list) -> int:
    return registers[operand[1]] if operand[0] == "r" else operand[1]


def start(thread: int) -> list:
    return [thread, (thread * 2654435761) & 0xFFFFFFFF, 5, thread % 7, 0]


@pytest.mark.parametrize("seed", share(range(60)))
def test_any_schedule_gives_the_same(seed: int, monkeypatch: pytest.MonkeyPatch):
    source = random.Random(seed)
    program = generate(source, 3, 4)
    grid, block = source.choice([(1, 5), (3, 32), (2, 70), (9, 16)])
    monkeypatch.setattr(
        "tessera.backend.ptx_executor.simt.launch.LANES", source.choice([16, 64, 1 << 15])
    )
    compiler = Compiler()
    compiler.emit([*program, *(("store", i, i % WORDS) for i in range(REGISTERS))])
    prologue = """
        mov.u32 %r10, %r3;
        mul.lo.u32 %r11, %r3, 2654435761;
        mov.u32 %r12, 5;
        rem.u32 %r13, %r3, 7;
        mov.u32 %r14, 0;
        mul.wide.u32 %rd4, %r3, 16;
        add.u64 %rd5, %rd1, %rd4;
    """
    count = grid * block
    body = prologue + "\n".join(compiler.lines)
    out, _ = run(body, grid=grid, block=block, initial=np.zeros(count * WORDS, np.uint32))
    expected = []
    for thread in range(count):
        registers, memory = start(thread), [0] * WORDS
        try:
            interpret(program, registers, memory)
            for i in range(REGISTERS):
                memory[i % WORDS] = registers[i]
        except Exit:
            pass
        expected.append(memory)
    assert out.reshape(count, WORDS).tolist() == expected
