"""What instructions make of values: intervals, numbers that grow with digits, addresses, symbols.

In: a seed. Out: lines, one for each instruction of a random chain and each way of putting two
values together. Only what is said is of interest, not whether it is right: for that see
`tests/property/test_value_programs.py` and `test_sloped_ops.py`.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

import numpy as np

from tessera.ir.opcodes import type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint.local import any_of_type
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Digit, Split
from tessera.passes.lane_values.lane_kinds import result_kind
from tessera.passes.lane_values.lane_ops import lane_function
from tessera.passes.lane_values.lanes import MASK, U64, Lanes, Slopes, sloped
from tessera.passes.lane_values.masks import Mask
from tessera.passes.lane_values.named_values import loaded_number
from tessera.passes.lane_values.narrowing import narrowed
from tessera.passes.lane_values.slopes import apart, collapsed
from tessera.passes.lane_values.symbols import DataSymbol, SumBound
from tessera.passes.lane_values.warps import shuffle
from tests.property.test_sloped_ops import number
from tests.property.test_value_programs import Runner
from tests.unit.passes.test_integer_values import NAMES, forms_with_sources, result_bits

THREADS, LENGTH = 4, 25
DIGITS = (Digit(0, 1, 3), Digit(1, 3, 5))
EVERY = np.ones((1, THREADS), dtype=np.bool_)


@functools.cache
def opcodes() -> dict[str, list[tuple[ptx.Opcode, list[int]]]]:
    """Integer instructions and comparisons by name, with the bits of their sources."""
    floats = [
        (ptx.Opcode("setp", (test, *flush, type)), [type_bits(type)] * 2)
        for test in ("lt", "ge", "eq", "ne", "equ", "num")
        for type in ("f32", "f64")
        for flush in ([], ["ftz"])
        if type == "f32" or not flush
    ]
    known = [one for one in floats if lane_function(one[0]) is not None]
    return {name: forms_with_sources(name) for name in NAMES} | {"": known}


class _Runner(Runner):
    def bits(self, name: str) -> int:
        return self.code.widths[name]


def said_of_values(seed: int) -> Iterator[str]:
    """The lines of a seed."""
    rng, runner = random.Random(f"values {seed}"), _Runner()
    held: dict[int, list[Lanes]] = {bits: [] for bits in (1, 8, 16, 32, 64, 128)}
    for _ in range(LENGTH):
        opcode, widths = rng.choice(opcodes()[rng.choice([*opcodes()])])
        values = list[Lanes]()
        for wide in widths:
            if wide and (not held[wide] or rng.random() < 0.4):
                held[wide].append(_value(rng, runner, wide))
            table = lanes.scalar(rng.choice((0, 1, 0x80, 0x96, 0xE8, 0xFF)))
            values.append(rng.choice(held[wide][-4:]) if wide else table)
        result, text = result_bits(opcode), str(opcode)
        yield f"{text} of {' and '.join(map(text_of, values))}"
        kinds = [lanes.of_kind(value, rng.randrange(lanes.HARD + 1)) for value in values]
        try:
            kind = result_kind(opcode, kinds, result)
            yield f"  of {[one.kind for one in kinds]}: {kind}"
            made = runner.run(text, values, result)
        except Split as split:
            yield f"  split {split.digits}"
            continue
        yield f"  {text_of(made)}"
        if result in held:
            held[result].append(made)
        yield from _together(rng, runner, values, widths[0])


def _together(rng: random.Random, runner: _Runner, values: list[Lanes], bits: int) -> Iterator[str]:
    """Two values put together, and of some threads; bits of a predicate as a condition."""
    first, last = values[0], values[-1]
    mask, other = _mask(rng), _mask(rng)
    if bits == 1:
        for name, rest in (
            ("if", mask.narrow(first)), ("unless", mask.unless(first)), ("or", mask.union(other))
        ):  # fmt: skip
            yield f"  {name} {_text_of_mask(rest)}"
        if first.facts is not None:
            mark = len(runner.assumed.trail)
            for side, certain in ((first.facts.true, None), (first.facts.false, mask.sure)):
                runner.assumed.assume(side, mask.may, certain)
                yield "  told " + " ".join(_text_of_symbol(s) for b in side for s, _ in b.terms)
            runner.assumed.undo(mark)
        return
    modes = (rng.choice(("up", "down", "bfly", "idx")), "b32")
    lane, clamp = (lanes.scalar(rng.choice(of)) for of in ((0, 1, 2, 33), (0, 31, 0x1C1F, 2)))
    for name, put in (
        ("merge", lambda: lanes.merge(mask.may, first, last)),
        ("join", lambda: lanes.join(first, last, bits)),
        ("hull", lambda: lanes.hull(first, last, bits)),
        ("one of", lambda: lanes.one_of((first, last), 0)),
        ("only in", lambda: lanes.only_in(first, mask.may)),
        ("exact in", lambda: lanes.exact_in(first, mask.may)),
        ("widened", lambda: lanes.widened(first, bits, 0)),
        ("narrowed", lambda: narrowed(first, bits)),
        ("collapsed", lambda: collapsed(first, mask.may)),
        ("shuffled", lambda: shuffle(first, lane, clamp, modes, mask.everybody, THREADS)),
    ):
        try:
            yield f"  {name} {text_of(put())}"
        except Split as split:
            yield f"  {name} split {split.digits}"
    for threads, slopes in apart(first.slopes, mask.may, first.start) if first.slopes else ():
        yield f"  apart {threads.tolist()} {_text_of_slopes(slopes)}"


def _mask(rng: random.Random) -> Mask:
    may = np.array([[rng.random() < 0.7 for _ in range(THREADS)] for _ in rng.choice(("a", "ab"))])
    strong = may & (rng.random() < 0.5)
    return (
        Mask(may, strong, strong & (rng.random() < 0.5))
        if rng.random() < 0.7
        else Mask(EVERY, EVERY, EVERY)
    )


def _text_of_mask(mask: Mask | None) -> str:
    sets = () if mask is None else (mask.may, mask.strong, mask.sure)
    return " ".join(str(threads.astype(int).tolist()) for threads in sets)


def _value(rng: random.Random, runner: Runner, bits: int) -> Lanes:
    """One of each form."""
    if bits == 1:
        return lanes.between(0, 1, 1, 0) if rng.random() < 0.7 else lanes.scalar(rng.randrange(2))
    match rng.choice(("one", "one", "row", "interval", "sloped", "sloped", "loaded")):
        case "one":
            return lanes.scalar(number(rng, bits), bits)
        case "row":
            first, step = number(rng, bits), rng.choice((1, 4, number(rng, bits)))
            rows = [
                [first + step * thread + 4 * cta & MASK[bits] for thread in range(THREADS)]
                for cta in rng.choice(((0,), (0,), (0, 9)))
            ]
            return Lanes(np.array(rows, dtype=U64))
        case "interval":
            reach = np.array([[number(rng, bits)]], dtype=U64)
            return Lanes(lanes.scalar(number(rng, bits), bits).low(), reach, 0)
        case "sloped":
            slopes = {d: np.array([[number(rng, bits)]], dtype=U64) for d in DIGITS}
            given = dict(list(slopes.items())[: rng.choice((1, 2))])
            return sloped(lanes.scalar(number(rng, bits), bits), given, bits)
    type = rng.choice([f"{sign}{w}" for sign in "us" for w in (8, 16, 32, 64) if w <= bits])
    unknown = any_of_type(type, bits, 0)
    return loaded_number(runner.assumed, unknown, bits, is_shared=rng.random() < 0.3)


def text_of(value: Lanes) -> str:
    """All that a value says."""
    parts = [f"{value.start.tolist()}"]
    if value.span is not None:
        parts.append(f"+{value.span.tolist()}")
    parts += [_text_of_slopes(value.slopes)] * bool(value.slopes)
    parts += [f"kind {value.kind}"] * bool(value.kind)
    if value.form is not None:
        form = value.form
        terms = [(_text_of_symbol(symbol), factor) for symbol, factor in form.terms]
        parts.append(f"form {form.at.tolist()} {terms} {form.where.tolist()}")
    if value.facts is not None:
        sides = [list(map(_bound, side)) for side in (value.facts.true, value.facts.false)]
        parts.append(f"facts {sides}")
    if value.signs is not None:
        parts.append("signs " + " / ".join(map(text_of, value.signs[1:])))
    parts += [f"or {text_of(option)}" for option in value.options]
    return " ".join(parts)


def _bound(bound: SumBound) -> str:
    terms = [(symbol.number, factor) for symbol, factor in bound.terms]
    return f"{bound.low.tolist()} <= {terms} <= {bound.high.tolist()}"


def _text_of_symbol(symbol: DataSymbol) -> str:
    return f"{symbol.number} in {symbol.low.tolist()} {symbol.high.tolist()}"


def _text_of_slopes(slopes: Slopes) -> str:
    return " ".join(f"{d.axis}:{d.stride}:{d.count}*{s.tolist()}" for d, s in slopes.items())
