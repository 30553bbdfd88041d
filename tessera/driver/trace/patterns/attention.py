"""Attention that a model writes out, and copies that attention and products make needless.

In: a `ValueFlow`. Out: groups of calls, each with the call that stands for it. Two products with a
softmax on every way between them are one attention, whatever else happens to the scores: a scale, a
cap (`tanh`), a bias, a mask, a logit that stands for no key (a sink). Keys and values that were
repeated for the heads of a group are read where they are. A copy of a result that nothing else
reads is the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tessera.driver.trace.patterns.flow import OUTSIDE, Value, ValueFlow, between
from tessera.driver.trace.patterns.makers import ATTENTION
from tessera.ir.operators.records import Unit
from tessera.ir.operators.table import work_of
from tessera.ir.program import program as ir

_PRODUCTS = ("aten::bmm", "aten::baddbmm")
_COPIES = ("aten::clone",)
_FARTHEST = 12  # calls between the softmax and a product
Found = tuple[list[int], ir.LibraryCall]


def find_attention(flow: ValueFlow) -> Iterator[Found]:
    """Attention written out, in the order of the program."""
    for at, call in enumerate(flow.calls):
        if call.operator == "aten::_softmax" and _along_last(call):
            first = next((n for n in _before(flow, at) if _is_product(flow, n)), None)
            second = next((n for n in _after(flow, at) if _is_product(flow, n)), None)
            if first is not None and second is not None:
                attention = _ScoredProducts(flow, first, second)
                if (made := attention.call()) is not None:
                    yield sorted(attention.group), made


def find_copies(flow: ValueFlow) -> Iterator[Found]:
    """Products and attention with a copy of their result."""
    for at, call in enumerate(flow.calls):
        value = flow.reads[at][0] if call.operator in _COPIES else (0, OUTSIDE)
        if value[1] == OUTSIDE or not flow.is_private(value, [at]):
            continue
        maker = flow.calls[value[1]]
        work = work_of(maker)
        if work is None or work.unit is not Unit.MATRIX or len(maker.writes) != 1:
            continue
        (target,) = call.writes
        if (moved := _written_as(maker.writes[0], call.reads[0], target)) is not None:
            yield [value[1], at], replace(maker, writes=(moved,))


def _written_as(result: ir.Operand, read: ir.Operand, target: ir.Operand) -> ir.Operand | None:
    """The result with the strides of a copy of it; None if the copy is not of all of it."""
    if result.dtype is not target.dtype or result.pointer != read.pointer:
        return None
    if prod(result.shape) != prod(target.shape):
        return None
    sizes = zip(read.shape, read.element_strides(), target.element_strides(), strict=True)
    places = {(size, step): new for size, step, new in sizes if size > 1}
    own = list(zip(result.shape, result.element_strides(), strict=True))
    if any(size > 1 and pair not in places for pair in own for size in pair[:1]):
        return None
    strides = tuple(places.get(pair, 0) for pair in own)
    return replace(result, pointer=target.pointer, strides=strides)


def _along_last(call: ir.LibraryCall) -> bool:
    return dict(call.attributes).get("dim") in (-1, len(call.reads[0].shape) - 1)


def _is_product(flow: ValueFlow, at: int) -> bool:
    return flow.calls[at].operator in _PRODUCTS


def _before(flow: ValueFlow, at: int) -> Iterator[int]:
    """Calls that lead to one, nearest first; not beyond products."""
    waiting = {at}
    for place in range(at, max(-1, at - _FARTHEST), -1):
        if place in waiting:
            if place != at:
                yield place
            if not _is_product(flow, place):
                waiting |= {writer for _, writer in flow.reads[place]}


def _after(flow: ValueFlow, at: int) -> Iterator[int]:
    reached = {at}
    for place in range(at + 1, min(len(flow.calls), at + _FARTHEST)):
        if flow.reads[place] and flow.reads[place][0][1] in reached:
            reached.add(place)
            yield place


class _ScoredProducts:
    """What happens between two products."""

    def __init__(self, flow: ValueFlow, first: int, second: int) -> None:
        self.flow, self.first, self.second = flow, first, second
        self.group = between(flow, first, second)
        self.inner = sorted(self.group - {first, second})
        self.scale = 1.0
        self.cap: float | None = None
        self.more: dict[str, ir.Operand] = {}

    def call(self) -> ir.LibraryCall | None:
        """The attention; None if anything else happens to the scores."""
        flow, made = self.flow, self.flow.calls[self.second].writes[0]
        if not all(map(self._understand, self.inner)) or not self._take_bias():
            return None
        scores = [o.shape for at in self.inner for o in flow.calls[at].writes]
        batch = next((shape[0] for shape in scores if len(shape) == 4), 1)
        *_, query, key = flow.calls[self.first].reads
        values = flow.reads[self.first][-2:]
        value = flow.calls[self.second].reads[1]
        turned = replace(
            key,
            shape=(key.shape[0], key.shape[2], key.shape[1]),
            strides=tuple(key.element_strides()[n] for n in (0, 2, 1)),
        )
        heads = made.shape[0] // batch
        taken = (
            self._heads(query, values[0], batch),
            self._source(turned, values[1], batch, heads),
            self._source(value, flow.reads[self.second][1], batch, heads),
        )
        shared = {"enable_gqa": True} if taken[1].shape[1] != heads else {}
        attributes: dict[str, ir.AttributeValue] = {"scale": self.scale, **shared}
        plain = self.cap is None and self.more.keys() <= {"attn_mask"}
        if not plain:
            attributes |= {"softcap": self.cap} if self.cap is not None else {}
            names = ("attn_mask", "sinks", "attn_bias")
            attributes |= {name: None for name in names if name not in self.more}
        own = [self.more[n] for n in ("attn_mask", "sinks", "attn_bias") if n in self.more]
        return ir.LibraryCall(
            id=ir.LaunchId(0),
            operator=ATTENTION if plain else "tessera::attention",
            reads=(*taken, *own),
            writes=(self._heads(made, (0, OUTSIDE), batch),),
            attributes=tuple(attributes.items()),
        )

    def _understand(self, at: int) -> bool:
        """Note what a call does to the scores."""
        call, values = self.flow.calls[at], self.flow.reads[at]
        kind = call.operator.removeprefix("aten::").partition(".")[0].rstrip("_")
        number = dict(call.attributes).get("other")
        others = [
            operand
            for operand, value in zip(call.reads, values, strict=True)
            if value[1] not in self.group
        ]
        match kind, others:
            case (("mul" | "div"), []) if isinstance(number, int | float) and number:
                if self._is_capped(at):  # back to its size after the cap
                    self.cap = float(number) if kind == "mul" else 1.0 / number
                else:
                    self.scale *= float(number) if kind == "mul" else 1.0 / number
                return True
            case "add", [mask] if len(call.reads) == 2:
                return self._take("attn_mask", mask)
            case "cat", [sinks] if len(call.reads) == 2:
                return self._take("sinks", sinks)
            case (("_softmax" | "softmax" | "_to_copy" | "clone" | "tanh" | "max" | "amax"), []):
                return True
            case "sub", []:  # of the largest score
                return True
        return False

    def _is_capped(self, at: int) -> bool:
        writer = self.flow.reads[at][0][1]
        return writer in self.group and self.flow.calls[writer].operator == "aten::tanh"

    def _take_bias(self) -> bool:
        call = self.flow.calls[self.first]
        if call.operator == "aten::bmm":
            return True
        given = dict(call.attributes)
        alpha = given.get("alpha", 1)
        self.scale *= alpha if isinstance(alpha, int | float) else 1.0
        bias = call.reads[0]
        if len(bias.shape) != 3 or given.get("beta", 1) != 1:
            return False
        scores = [o.shape for at in self.inner for o in self.flow.calls[at].writes]
        batch = next((shape[0] for shape in scores if len(shape) == 4), 1)
        return self._take("attn_bias", self._heads(bias, (0, OUTSIDE), batch))

    def _take(self, name: str, operand: ir.Operand) -> bool:
        if name in self.more:
            return False
        self.more[name] = operand
        return True

    def _heads(self, operand: ir.Operand, value: Value, batch: int) -> ir.Operand:
        """[batch * heads, ...] as [batch, heads, ...]."""
        count, *rest = operand.shape
        step, *steps = operand.element_strides()
        own = count // batch
        return replace(operand, shape=(batch, own, *rest), strides=(own * step, step, *steps))

    def _source(self, operand: ir.Operand, value: Value, batch: int, heads: int) -> ir.Operand:
        """Keys or values where they were copied from, once for all heads of a group."""
        call = self.flow.calls[value[1]] if value[1] != OUTSIDE else None
        size = (batch, heads, *operand.shape[1:])
        if (
            call is not None
            and call.operator in _COPIES
            and self.flow.is_private(value, self.group)
        ):
            read = call.reads[0]
            shape, strides = read.shape, read.element_strides()
            repeated = len(shape) == 5 and strides[2] == 0
            whole = (*shape[:1], shape[1] * shape[2], *shape[3:]) if repeated else shape
            if whole == size and prod(call.writes[0].shape) == prod(size):
                self.group.add(value[1])
                if repeated:
                    shape, strides = (*shape[:2], *shape[3:]), (*strides[:2], *strides[3:])
                return replace(read, shape=shape, strides=strides)
        return self._heads(operand, value, batch)
