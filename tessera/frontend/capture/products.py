"""Choose between the kernels that Inductor has for a product, without running any of them.

In: Inductor's choices for a product or a convolution, and what a cut of one would take
(`CutPrices`). Out: times for all of them. `CutPrices` has no knowledge of PyTorch: the driver makes
it of the model of durations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from torch._inductor.select_algorithm import ChoiceCaller

Inner = Any
"""An object of Inductor's own, of which it says no type."""

Cut = TypeVar("Cut")
_SETTING = re.compile(r"\b(BLOCK_[MNK]|num_stages|num_warps)=([0-9]+)")
_UNITS = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float8_e4m3fn": "fp8",
    "torch.float8_e5m2": "fp8",
    "torch.int8": "int8",
}
_KEPT = 2  # Triton kernels per product that code is generated for
# Kernels timed, of about 20, for products with many rows. On an H200 the fastest kernel of each of
# seven such products was among the first six.
_MANY_ROWS, _TIMED = 256, 8
# A choice without a price comes after priced ones, and before those that cannot run (1e15).
_UNPRICED_NS = 1e12
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductCut:
    """A product of `batch` times m by k with k by n, in blocks; elements of `width` bytes."""

    batch: int
    m: int
    n: int
    k: int
    width: int
    unit: str
    rows: int
    columns: int
    inner: int
    warps: int
    stages: int


class TemplateChoice(Protocol):
    """A choice of Inductor's of which no code has been made yet."""

    params: Inner
    inputs: Inner
    layout: Inner


class CutPrices(Protocol):
    """Estimated times in nanoseconds on the GPUs that are compiled for."""

    def product_ns(self, cut: ProductCut) -> float:
        """A product in given blocks."""

    def library_ns(self, cut: ProductCut) -> float:
        """A product as a library would compute it."""

    def fastest(self, size: object, cuts: list[Cut]) -> Cut:
        """The best of several ways to cut a call of one of our own kernels."""


class ProductPrices:
    """Prices for Inductor in place of measurements; `heard` gets the name of each product."""

    def __init__(self, priced: CutPrices, heard: Callable[[str], None]) -> None:
        self._priced = priced
        self._heard = heard

    def times(
        self, choices: Sequence[ChoiceCaller], nodes: Sequence[Inner], layout: Inner
    ) -> Mapping[ChoiceCaller, float]:
        """Milliseconds of each choice, as Inductor has them."""
        self._heard(str(getattr(choices[0], "name", "a product")))
        return {choice: self._choice_ns(choice, nodes, layout) / _NS_PER_MS for choice in choices}

    def best_first(self, wanted: Sequence[TemplateChoice]) -> list[TemplateChoice]:
        """Choices before any code is made of them: those of libraries, then the best blocks."""
        return self._best(wanted, _KEPT)

    def worth_timing(self, wanted: Sequence[TemplateChoice]) -> list[TemplateChoice]:
        """The choices that can be the fastest, of those to be timed: all if rows are few.

        With many rows the time goes by how many blocks there are, which the model knows well.
        """
        sizes = [_size(choice.inputs.nodes(), choice.layout) for choice in wanted]
        if any(size is None or size["m"] < _MANY_ROWS for size in sizes):
            return list(wanted)
        return self._best(wanted, _TIMED)

    def _best(self, wanted: Sequence[TemplateChoice], most: int) -> list[TemplateChoice]:
        libraries = [choice for choice in wanted if "BLOCK_M" not in choice.params.to_kwargs()]
        others = [choice for choice in wanted if choice not in libraries]

        def template_ns(choice: TemplateChoice) -> float:
            size = _size(choice.inputs.nodes(), choice.layout)
            return self._ns(choice.params.to_kwargs(), size)

        return [*libraries, *sorted(others, key=template_ns)[:most]]

    def _choice_ns(self, choice: ChoiceCaller, nodes: Sequence[Inner], layout: Inner) -> float:
        told = str(getattr(choice, "description", ""))
        settings = {name: int(value) for name, value in _SETTING.findall(told)}
        is_convolution = "conv" in str(getattr(choice, "name", ""))
        return self._ns(settings, _size(nodes, layout, is_convolution=is_convolution))

    def _ns(self, settings: Mapping[str, Inner], size: dict[str, Inner] | None) -> float:
        if size is None:
            return _UNPRICED_NS
        cut = ProductCut(
            **size,
            rows=int(settings.get("BLOCK_M", 64)),
            columns=int(settings.get("BLOCK_N", 64)),
            inner=int(settings.get("BLOCK_K", 32)),
            warps=int(settings.get("num_warps", 4)),
            stages=int(settings.get("num_stages", 2)),
        )
        by_library = "BLOCK_M" not in settings
        return self._priced.library_ns(cut) if by_library else self._priced.product_ns(cut)


def _size(
    nodes: Sequence[Inner], layout: Inner, *, is_convolution: bool = False
) -> dict[str, Inner] | None:
    """The sizes of a product, or of a convolution as one; None if they are not numbers."""
    try:
        made = [int(size) for size in layout.size]
        shapes = [[int(size) for size in node.get_size()] for node in nodes]
    except (TypeError, ValueError):
        return None
    if is_convolution:
        weights = shapes[1]
        rows = prod(made) // max(1, made[1])
        sizes = {"batch": 1, "m": rows, "n": made[1], "k": max(1, prod(weights[1:]))}
        return {**sizes, **_unit(nodes[1])}
    *batch, m, n = made if len(made) > 1 else (1, *made)
    place = _right_factor(shapes, m, n)
    if len(shapes[place]) < 2:
        return None
    sizes = {"batch": prod(batch), "m": m, "n": n, "k": max(1, shapes[place][-2])}
    return {**sizes, **_unit(nodes[place])}


def _right_factor(shapes: Sequence[Sequence[int]], m: int, n: int) -> int:
    """The place of the second factor of a product: an addend comes before it, scales after it."""
    for place, (left, right) in enumerate(pairwise(shapes), 1):
        is_pair = len(left) > 1 and len(right) > 1 and left[-1] == right[-2]
        if is_pair and (left[-2], right[-1]) == (m, n):
            return place
    return len(shapes) - 1


def _unit(node: Inner) -> dict[str, Inner]:
    kind = node.get_dtype()
    return {"width": int(kind.itemsize), "unit": _UNITS.get(str(kind), "fp32")}
