"""A model's own Triton kernels, run on the host by Triton's interpreter.

In: nothing. Out: a context in which launches of such kernels compute on tensors of the host, and
the names of those that were launched. Without it there is no driver to launch them with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.problems import RAISED, first_line
from tessera.frontend.capture.products import Inner


@contextmanager
def interpreted_kernels() -> Iterator[list[str]]:
    """Interpret kernels; a kernel that would be tuned runs with its first setting."""
    names: list[str] = []
    if "triton" not in sys.modules:
        yield names
        return
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    def launch(
        kernel: Inner, *given: Inner, grid: Inner, warmup: bool = False, **named: Inner
    ) -> None:
        name = kernel.fn.__name__
        try:
            InterpretedFunction(kernel.fn).run(*given, grid=grid, warmup=False, **named)
        except Exception as problem:  # whatever the interpreter does not know
            said = f"Triton's interpreter does not run the kernel `{name}`: {first_line(problem)}"
            raise TesseraError.of(RAISED, said) from problem
        if name not in names:
            names.append(name)

    def call(kernel: Inner, *given: Inner, **named: Inner) -> Inner:
        """A function that a kernel calls."""
        return InterpretedFunction(kernel.fn)(*given, **named)

    def untuned(tuner: Inner, *given: Inner, **named: Inner) -> Inner:
        chosen = tuner.configs[0].all_kwargs() if tuner.configs else {}
        return tuner.fn.run(*given, **{**chosen, **named})

    with ExitStack() as stack, _same_language():
        for owner, name, value in (
            (JITFunction, "run", launch),
            (JITFunction, "__call__", call),
            (Autotuner, "run", untuned),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield names


@contextmanager
def _same_language() -> Iterator[None]:
    """Give Triton's language back what the interpreter has put into it: functions that kernels call
    leave it there, and nothing would compile any more."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("triton.language")]
    classes = {part for module in modules for part in vars(module).values() if _is_own_class(part)}
    before = [(owner, dict(vars(owner))) for owner in (*modules, *classes)]
    try:
        yield
    finally:
        for owner, had in before:
            for name in vars(owner).keys() - had.keys():
                delattr(owner, name)
            for name, value in had.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)


def _is_own_class(part: object) -> bool:
    return isinstance(part, type) and part.__module__.startswith("triton.language")
