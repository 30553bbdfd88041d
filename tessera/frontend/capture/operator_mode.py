"""The dispatch mode that every capture notes operators with.

In: a function that calls operators and notes them. Out: a dispatch mode. It holds what all captures
do alike: an operator that no trace holds and that is made of others is those; operators over
functions are refused, apart from Triton's kernels where compiled code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

import torch
from torch.backends import mha
from torch.utils._python_dispatch import TorchDispatchMode

from tessera.frontend.capture.problems import takes_functions
from tessera.frontend.capture.taken_apart import CELLS, gru_cell
from tessera.ir.operators.table import table

# Triton's own kernels by way of `torch.library.wrap_triton`: they launch, and nothing else.
_LAUNCHES = "triton_kernel_wrapper"
OperatorCall = Callable[
    [
        AbstractContextManager[object],
        "torch._ops.OpOverload",
        tuple[object, ...],
        dict[str, object],
    ],
    object,
]
"""Calls an operator with its arguments, and gives its result; the mode itself is not in force."""


def operator_mode(call: OperatorCall, *, compiled: bool) -> AbstractContextManager[object]:
    """A mode that has every operator called by `call`; `compiled`: inside of compiled code, too."""
    made_of = torch._C.DispatchKey.CompositeImplicitAutograd
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key

    class OperatorMode(TorchDispatchMode):  # type: ignore[misc]
        # So that those come here, too.
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            """Compiled code runs as it is, and its library calls are seen all the same."""
            return compiled

        def __torch_dispatch__(
            self,
            func: torch._ops.OpOverload,
            types: object,
            args: tuple[object, ...] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:
            named = dict(kwargs or {})
            if isinstance(func, torch._ops.HigherOrderOperator):
                if compiled and func.name().startswith(_LAUNCHES):
                    return func(*args, **named)
                raise takes_functions(func.name())
            if func.namespace == "prim":  # what is asked of a tensor, such as its device
                return func(*args, **named)
            if name_of(func) not in table() and has_kernel(func.name(), made_of):
                # In inference mode, and inside of others, even `matmul` comes here as it is.
                with self:
                    return func._op_dk(made_of, *args, **named)
            if (cell := CELLS.get(name_of(func))) is not None:
                with self:
                    return cell(*args, **named)
            return call(self, func, args, named)

    mode: AbstractContextManager[object] = OperatorMode()
    return mode


@contextmanager
def without_fast_paths() -> Iterator[None]:
    """Make PyTorch's own layers call operators that a trace holds: in evaluation transformer layers
    would call a single one for a whole layer, and cells of GRUs one that has no shapes."""
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        with mock.patch.object(torch._VF, "gru_cell", _gru_cell):
            yield
    finally:
        mha.set_fastpath_enabled(before)


def _gru_cell(
    given: torch.Tensor,
    hidden: torch.Tensor,
    weight_ih: torch.Tensor,
    weight_hh: torch.Tensor,
    bias_ih: torch.Tensor | None = None,
    bias_hh: torch.Tensor | None = None,
) -> torch.Tensor:
    """The cell of a GRU by operators that have shapes."""
    linear = torch.nn.functional.linear
    gates = (linear(given, weight_ih, bias_ih), linear(hidden, weight_hh, bias_hh))
    return gru_cell(*gates, hidden)[0]


def call_own(
    mode: AbstractContextManager[object],
    func: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Call an operator of our own as the code that it is made of, with the mode in force there."""
    with mode:
        result: object = func._op_dk(
            torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs
        )
        return result


def name_of(func: torch._ops.OpOverload) -> str:
    """As a trace names it: `aten::add.Tensor`."""
    schema = func._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
