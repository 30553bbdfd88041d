"""What library calls compute, with its sizes: records that `library_launches` prices.

In: nothing. Out: frozen records.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tessera.ir.program.routing import Routing
from tessera.planning.prices.expert_routing import UNIFORM, expected_experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Products of `m` by `k` with `k` by `n` elements of `width` bytes.

    Rows begin at multiples of `step` elements; 0: they are contiguous. If `narrowed`, the first
    matrix comes with two bytes per element: its scales are found and it is narrowed before.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    step: int = 0
    unit: str = "bf16"
    width: int = 2
    narrowed: bool = False

    @property
    def is_widened(self) -> bool:
        """Whether weights of a byte or less are widened for the product."""
        return self.width == 1 and self.unit in ("bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Queries of `heads` heads over the keys of `kv_heads`, all of `size` elements.

    If `put`, an engine first writes the new keys and values to its cache.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    causal: bool
    unit: str = "bf16"
    width: int = 2
    put: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """A product of each expert's rows with the weights of that expert, [k, n] each.

    Each of `tokens` tokens has `chosen` rows. `weight_width` is bytes per element of the weights,
    with their scales.
    """

    tokens: int
    chosen: int
    experts: int
    n: int
    k: int
    weight_width: float = 2.0
    unit: str = "bf16"
    width: int = 2
    routing: Routing = UNIFORM

    @property
    def rows(self) -> int:
        """Rows of all experts."""
        return self.tokens * min(self.chosen, self.experts)

    @property
    def moved(self) -> float:
        """The bytes of the weights of all experts that are expected to have rows."""
        hit = expected_experts(self.tokens, self.chosen, self.experts, self.routing)
        return hit * self.n * self.k * self.weight_width


@dataclass(frozen=True, slots=True)
class Experts:
    """All that experts do: rows are sorted by expert, `up` leads to an activation (that of a gate
    halves its columns), and what `down` makes is summed up for each token.
    """

    up: Grouped
    down: Grouped

    @property
    def moved(self) -> float:
        """The bytes of the weights of all experts that are expected to have rows."""
        return self.up.moved + self.down.moved

    @property
    def inside(self) -> float:
        """The bytes of rows between the two products, and before the sum: written, then read."""
        up, down = self.up, self.down
        return 2.0 * up.width * up.rows * (up.n + down.k + down.n)


class RowKind(enum.Enum):
    """The operation on rows."""

    NORM = "norm"
    SOFTMAX = "softmax"
    SCAN = "scan"
    GATHER = "gather"


@dataclass(frozen=True, slots=True)
class RowCall:
    """`rows` rows of `elements` elements of `width` bytes each."""

    kind: RowKind
    rows: int
    elements: int
    width: int


@dataclass(frozen=True, slots=True)
class Plain:
    """An elementwise operation.

    If elements that meet do not lie alike in all operands, threads find the place of each in each
    of `operands` operands along `dims` dimensions, and ask for `asked` bytes.
    """

    elements: float
    operations: float
    bytes: float
    dims: int = 1
    operands: int = 0
    asked: float = 0.0


CallShape = Product | Attention | Grouped | Experts | RowCall | Plain


def routed(shape: CallShape, routing: Routing) -> CallShape:
    """The call with tokens that choose their experts by a law; other calls as they are."""
    match shape:
        case Grouped():
            return replace(shape, routing=routing)
        case Experts(up=up, down=down):
            return Experts(replace(up, routing=routing), replace(down, routing=routing))
    return shape
