"""Random programs on numbers from memory: what is known of values holds for the numbers themselves.

In: programs of integer instructions on loaded numbers, with comparisons whose sides are assumed, as
the analysis runs them (`footprint.steps`). A second interpreter, on plain numbers, runs them with
numbers near the ends of their types. Each number lies in the interval of its value and is the sum
that its form says; where a predicate holds, so does what it tells of symbols. How many bits of
values are open, and how many values tell nothing, is recorded (`conftest.py`).
"""

from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from tessera.ir.opcodes import type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint.local import any_of_type
from tessera.passes.footprint.steps import StepRunner
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_ops import lane_function, source_bits
from tessera.passes.lane_values.lanes import U64, Lanes
from tessera.passes.lane_values.masks import ALL
from tessera.passes.lane_values.named_values import loaded_number
from tessera.passes.lane_values.narrowing import narrowed
from tessera.passes.lane_values.symbols import Assumptions, SumBound, total
from tessera.passes.lane_values.symbols import number as whole
from tests.helpers.access_oracle import LOOSE
from tests.helpers.share import least

THREADS = 2
RUNS = 40  # of a program, with other numbers
PLAIN = ("add", "sub", "mul.lo", "min", "max", "div", "rem", "shr", "shl", "and", "or", "xor")
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 100, 127, 128, 255, 256, 1000, 32767, 32768, 65535)
COMPARISONS = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def plain_result(text: str, given: list[int]) -> int | None:
    """The number that an instruction computes; None where the ISA leaves it open."""
    name, *modifiers = text.split(".")
    type = modifiers[-1]
    if type == "pred":
        a, b = (*given, 0)[:2]
        return {"and": a & b, "or": a | b, "xor": a ^ b, "not": 1 - a}[name]
    bits = type_bits(type)
    if name == "cvt":
        value = given[0] & ((1 << bits) - 1)
        value = signed(value, bits) if type[0] == "s" else value
        return value & ((1 << type_bits(modifiers[0])) - 1)
    if name == "selp":
        return given[0] if given[2] else given[1]
    numbers = [signed(value, bits) if type[0] == "s" else value for value in given]
    a, b = numbers[:2]
    if name == "bfe":
        first, count = given[1] & 255, given[2] & 255
        field = (a >> first) & ((1 << count) - 1)  # an unsigned number has zeros above it
        is_signed = type[0] == "s" and count > 0 and field >> (count - 1)
        return (field - (1 << count) if is_signed else field) & ((1 << bits) - 1)
    if name == "setp":
        return int(COMPARISONS[modifiers[0]](a, b))
    if name in ("div", "rem") and b == 0:
        return None
    whole = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "mad": lambda: a * b + given[2],
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "div": lambda: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "rem": lambda: abs(a) % abs(b) * (-1 if a < 0 else 1),
        "shr": lambda: a >> min(given[1], bits),
        "shl": lambda: a << min(given[1], bits),
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
    }[name]()
    return whole & ((1 << (2 * bits if "wide" in modifiers else bits)) - 1)


class Runner:
    """As much of the analysis as runs one instruction on values."""

    _evaluate, _evaluate_once = StepRunner._evaluate, StepRunner._evaluate_once
    _run_function, _fit = StepRunner._run_function, StepRunner._fit
    _predicates = StepRunner._predicates
    piece = object()

    def __init__(self) -> None:
        self.assumed = Assumptions()
        self.code = SimpleNamespace(widths={})

    def run(self, text: str, values: list[Lanes], bits: int) -> Lanes:
        name, *modifiers = text.split(".")
        opcode = ptx.Opcode(name, tuple(modifiers))
        self.code.widths["x"] = bits
        step = SimpleNamespace(
            instruction=SimpleNamespace(opcode=opcode),
            function=lane_function(opcode),
            targets=("x",),
            index=0,
        )
        return self._evaluate(step, values)[0]


class Numbers:
    """One run with plain numbers: registers, and the symbols as far as they have been seen."""

    def __init__(self) -> None:
        self.registers: list[list[int | None]] = []
        self.symbols: dict[object, list[int]] = {}
        self.negative: dict[object, list[bool]] = {}
        self.on = [True] * THREADS


_ROWS: dict[int, tuple[np.ndarray, list[int]]] = {}


def of(array: np.ndarray, thread: int) -> int:
    known = _ROWS.get(id(array))
    if known is None:  # the array is kept, so that no other one gets its id
        known = _ROWS[id(array)] = array, np.broadcast_to(array, (1, THREADS))[0].tolist()
    return known[1][thread]


def check_value(run: Numbers, value: Lanes, number: int, thread: int, bits: int) -> None:
    start = of(value.start, thread)
    span = 0 if value.span is None else of(value.span, thread)
    assert not value.options
    assert (number - start) % (1 << bits) <= span
    form = value.form
    if form is not None and of(form.where, thread):
        check_form(run, form, number, thread, bits)
    told = value.facts
    if told is not None:
        for bound in told.true if number else told.false:
            total = sum_of(run, bound.terms, thread)
            if total is not None:
                assert of(bound.low, thread) <= total <= of(bound.high, thread)
    if value.signs is not None and value.signs.key in run.negative:
        key, negative, other = value.signs
        side = negative if run.negative[key][thread] else other
        check_value(run, side, number, thread, bits)


def check_form(run, form, number, thread, bits):
    rest, new = number - of(form.at, thread), []
    for symbol, factor in form.terms:
        known = run.symbols.setdefault(symbol, [None] * THREADS)[thread]
        if known is None:
            new.append((symbol, factor))
        else:
            rest -= known * factor
    if not new:
        assert rest % (1 << bits) == 0
    elif len(new) == 1:  # a symbol that this instruction has made: the number is what it says
        ((symbol, factor),) = new
        low = of(symbol.low, thread)
        above = (rest - low * factor) % (1 << bits)
        assert above % abs(factor) == 0
        run.symbols[symbol][thread] = low + above // factor
        assert low <= run.symbols[symbol][thread] <= of(symbol.high, thread)


def sum_of(run, terms, thread):
    total = 0
    for symbol, factor in terms:
        known = run.symbols.get(symbol, [None] * THREADS)[thread]
        if known is None:  # of the other sign: of no concern
            return None
        total += known * factor
    return total


def number_near(draw: random.Random, bits: int) -> int:
    if draw.random() < 0.15:
        return draw.choice((0, 1 << (bits - 1))) + draw.choice((-1, 0, 1)) & ((1 << bits) - 1)
    base = draw.choice((0, 0, 0, 1 << (bits - 1), 1 << bits, 1 << draw.randrange(bits)))
    few = base + draw.choice((1, -1)) * draw.choice(NUMBERS)
    return few & ((1 << bits) - 1)


class Program:
    """A program that is made and run step by step, with all its runs side by side."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.runner = Runner()
        self.values: list[tuple[Lanes, int]] = []
        self.runs = [Numbers() for _ in range(RUNS)]
        self.lines: list[str] = []

    def load(self) -> None:
        type = self.draw.choice(("u8", "s8", "u16", "s16", "u32", "s32", "u32", "s64"))
        own = type_bits(type)
        bits = 64 if own == 64 else self.draw.choice((32, 32, 64))
        value = loaded_number(
            self.runner.assumed, any_of_type(type, bits, 0), bits, is_shared=False
        )
        for run in self.runs:
            numbers = [number_near(self.draw, own) for _ in range(THREADS)]
            wide = [signed(n, own) if type[0] == "s" else n for n in numbers]
            run.registers.append([n & ((1 << bits) - 1) for n in wide])
            if value.signs is not None:
                key = value.signs.key
                run.negative[key] = [bool(n >> (bits - 1)) for n in run.registers[-1]]
                for symbol, is_negative in zip(key, (True, False), strict=True):
                    run.symbols[symbol] = [
                        signed(n, bits) if (n >> (bits - 1) == 1) == is_negative else None
                        for n in run.registers[-1]
                    ]
        self.add(value, bits, f"load {type}")

    def add(self, value: Lanes, bits: int, line: str) -> None:
        self.values.append((value, bits))
        open_bits = [int(n).bit_length() for n in lanes.spans(narrowed(value, bits)).flat]
        LOOSE[:2] += [sum(open_bits), value.facts is None]
        self.lines.append(f"{len(self.values) - 1}: {line} -> {value}")
        self.check(len(self.values) - 1)

    def check(self, place: int) -> None:
        value, bits = self.values[place]
        shorter = narrowed(value, bits)
        for run in self.runs:
            for thread in range(THREADS):
                number = run.registers[place][thread]
                if number is not None and run.on[thread]:
                    check_value(run, value, number, thread, bits)
                    check_value(run, shorter, number, thread, bits)

    def source(self, bits: int) -> tuple[Lanes, list[list[int | None]], str]:
        """A register, or a number: the same for all threads, or one for each."""
        places = [n for n, (_, own) in enumerate(self.values) if own == bits]
        if places and (bits == 1 or self.draw.random() < 0.7):
            place = self.draw.choice(places[-6:])
            value = self.values[place][0]
            value = narrowed(value, bits) if self.draw.random() < 0.7 else value
            return value, [run.registers[place] for run in self.runs], f"r{place}"
        numbers = [number_near(self.draw, bits) for _ in range(THREADS)]
        if self.draw.random() < 0.7:
            numbers = numbers[:1]
        value = Lanes(np.array([numbers], dtype=U64))
        return value, [(numbers * THREADS)[:THREADS] for _ in self.runs], str(numbers)

    def constant(self, number: int) -> tuple[Lanes, list[list[int | None]], str]:
        return lanes.scalar(number), [[number] * THREADS for _ in self.runs], str(number)

    def step(self) -> None:
        type = self.draw.choice(("u32", "s32", "u32", "s32", "u64", "s64", "u16", "s16"))
        kind = self.draw.random()
        has_predicates = any(bits == 1 for _, bits in self.values)
        if kind < 0.25:
            text, bits = f"setp.{self.draw.choice([*COMPARISONS])}.{type}", 1
            widths = [type_bits(type)] * 2
        elif kind < 0.35 and has_predicates:
            text, bits = f"{self.draw.choice(('and', 'or', 'xor', 'not'))}.pred", 1
            widths = [1] * (1 if text.startswith("not") else 2)
        elif kind < 0.42 and has_predicates:
            text, bits = f"selp.b{type[1:]}", type_bits(type)
            widths = [bits, bits, 1]
        elif kind < 0.55:
            target = self.draw.choice(("u32", "s64", "u64", "s32", "u16"))
            text, bits, widths = f"cvt.{target}.{type}", type_bits(target), [type_bits(type)]
        elif kind < 0.6:
            own = self.draw.choice(("u32", "s32", "u16"))
            text, bits = f"mul.wide.{own}", 2 * type_bits(own)
            widths = [type_bits(own)] * 2
        elif kind < 0.66 and type_bits(type) > 16:
            text, bits = f"bfe.{type}", type_bits(type)
            widths = [bits, 32, 32]
        else:
            name = self.draw.choice(PLAIN)
            own = f"b{type[1:]}" if name in ("and", "or", "xor", "shl") else type
            text, bits = f"{name}.{own}", type_bits(type)
            parts = text.split(".")
            opcode = ptx.Opcode(parts[0], tuple(parts[1:]))
            widths = [source_bits(opcode, place, bits) for place in range(2)]
        sources = [self.source(width) for width in widths]
        if text.startswith("bfe") and self.draw.random() < 0.9:
            sources[1:] = [self.constant(self.draw.choice(NUMBERS[:12])) for _ in range(2)]
        result = self.runner.run(text, [value for value, _, _ in sources], bits)
        for number, run in enumerate(self.runs):
            given = [[numbers[number][t] for _, numbers, _ in sources] for t in range(THREADS)]
            run.registers.append(
                [None if None in row else plain_result(text, row) for row in given]
            )
        self.add(result, bits, f"{text} {', '.join(name for _, _, name in sources)}")

    def twins(self) -> None:
        """The same instruction on the same number, in 32 and in 64 bits."""
        sign = self.draw.choice("us")
        name = self.draw.choice(("and", "min", "max"))
        places = [n for n, (_, bits) in enumerate(self.values) if bits == 32]
        place, number = self.draw.choice(places or [0]), number_near(self.draw, 31)
        if not places:
            return
        for text in (f"cvt.{sign}64.{sign}32", f"{name}.{{}}32", f"{name}.{{}}64"):
            bits = 32 if text.endswith("32") and name in text else 64
            text = text.format("b" if name == "and" else sign)
            own = place if "cvt" in text or bits == 32 else len(self.values) - 2
            values = [self.values[own][0]]
            given = [[run.registers[own]] for run in self.runs]
            if "cvt" not in text:
                values.append(lanes.scalar(number))
                given = [[*row, [number] * THREADS] for row in given]
            result = self.runner.run(text, values, bits)
            for run, row in zip(self.runs, given, strict=True):
                numbers = [[numbers[t] for numbers in row] for t in range(THREADS)]
                run.registers.append(
                    [None if None in each else plain_result(text, each) for each in numbers]
                )
            self.add(result, bits, f"{text} r{own}")

    def side(self) -> None:
        """Goes into a side of a branch: what its predicate tells is assumed, then forgotten."""
        places = [
            n
            for n, (value, bits) in enumerate(self.values)
            if bits == 1 and value.facts is not None
        ]
        if not places:
            return
        place, holds = self.draw.choice(places), self.draw.random() < 0.5
        facts = self.values[place][0].facts
        mark, count = len(self.runner.assumed.trail), len(self.values)
        self.runner.assumed.assume(facts.true if holds else facts.false, ALL)
        before = [run.on for run in self.runs]
        for run in self.runs:
            # Symbols have one bound for all threads here: of a run all of them come, or none.
            come = all(n is not None and bool(n) == holds for n in run.registers[place])
            run.on = [come and on for on in run.on]
        self.lines.append(f"if r{place} is {holds}")
        for old in range(count):
            self.check(old)
        for _ in range(self.draw.randrange(1, 5)):
            self.step()
        self.runner.assumed.undo(mark)
        del self.values[count:]
        for run, on in zip(self.runs, before, strict=True):
            del run.registers[count:]
            run.on = on
        self.lines.append("end")

    def run(self) -> None:
        for _ in range(2):
            self.load()
        for _ in range(self.draw.randrange(4, 14)):
            kind = self.draw.random()
            self.side() if kind < 0.2 else self.twins() if kind < 0.3 else self.step()


@pytest.mark.parametrize("part", range(4))
def test_what_is_known_of_values_holds(part):
    for seed in range(part * 60, part * 60 + least(60, 25)):
        _ROWS.clear()
        program = Program(seed)
        try:
            program.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: " + "\n".join(program.lines)) from error


@pytest.mark.parametrize("part", range(2))
def test_bounds_of_sums_are_those_of_the_numbers_that_fulfil_them(part):
    """Small numbers, and those near the largest that are counted with; as tight as they can be by
    one known bound, in whole numbers."""
    for seed in range(part, 300, 2):
        draw = random.Random(seed)
        assumed, size = Assumptions(), draw.choice((1, 1, 1 << 30, 1 << 59, 1 << 61))
        starts = [draw.randint(-3, 3) * size for _ in range(3)]
        symbols = [assumed.fresh(whole(at), whole(at + 2)) for at in starts]
        factors = [draw.choice((-3, -1, 1, 2)) for _ in symbols]
        bounded = tuple(zip(symbols, factors, strict=True))[: draw.choice((2, 2, 3))]
        every = [dict(zip(symbols, row, strict=True)) for row in product(*map(near, starts))]
        sums = sorted({sum(row[s] * f for s, f in bounded) for row in every})
        low, high = sorted(draw.choices(sums, k=2))
        if max(map(abs, (low, high))) >= 1 << 63:
            continue
        assumed.keep(SumBound(bounded, whole(low), whole(high)))
        times = draw.choice((-2, -1, 1, 3))
        rest = [(s, draw.choice((1, 5))) for s in symbols[len(bounded) :] if draw.random() < 0.7]
        terms = (*((s, f * times) for s, f in bounded), *rest)
        held = [row for row in every if low <= sum(row[s] * f for s, f in bounded) <= high]
        reached = [sum(row[s] * f for s, f in terms) for row in held]
        found = total(terms)
        if found is None:
            assert size > 1
            continue
        least, most = int(found[0].item()), int(found[1].item())
        assert least <= min(reached)
        assert max(reached) <= most
        if size == 1:
            added = [sorted(f * v for v in near(starts[symbols.index(s)])) for s, f in rest]
            ends = sorted((low * times, high * times))
            assert least >= ends[0] + sum(values[0] for values in added)
            assert most <= ends[1] + sum(values[-1] for values in added)


def near(start: int) -> range:
    return range(start, start + 3)


def test_an_interval_that_ends_with_the_last_number_does_not_wrap():
    for bits, past in ((8, 0), (32, 0), (64, 0), (8, 1), (32, 1), (64, 1)):
        end = np.array([[(1 << bits) - 10]], dtype=U64)
        value = Lanes(end, np.array([[9 + past]], dtype=U64), 0)
        ends = (0, (1 << bits) - 1) if past else ((1 << bits) - 10, (1 << bits) - 1)
        assert tuple(bound.item() for bound in lanes.unsigned_bounds(value, bits)) == ends
