"""The inputs of a traced callable and the tensors that it holds, with names.

An argument has the name of its parameter, also if it is positional; a tensor that a callable holds
has the name of the closure variable, or of the attribute of an object that is not a parameter. So
two traces of one model, such as prompts and single tokens with one cache, share memory by name.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from tessera.diagnostics import Diagnostic
from tessera.frontend.capture.problems import on_host
from tessera.frontend.capture.tensors import named_tensors, tensors_in
from tessera.ir.program.program import Role

if TYPE_CHECKING:
    import torch

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Positional and named arguments."""

    plain: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict)

    def __iter__(self) -> Iterator[object]:
        """The positional arguments."""
        return iter(self.plain)

    def tensors(self, function: Callable[..., object]) -> list[tuple[str, torch.Tensor]]:
        """The tensors in the arguments, each with the name of its parameter, or its position."""
        names = _parameters(function)
        named = []
        for number, value in enumerate(self.plain):
            name = names[number] if number < len(names) else f"in{number}"
            named += named_tensors(name, value)
        for key, value in self.named.items():
            named += named_tensors(key, value)
        return named

    def call(self, function: Callable[..., R], *, is_last: bool = False) -> R:
        """Call a function with the arguments; states that it replaces keep their memory.

        The last call is the captured one: states must have their final sizes by then.
        """
        if "torch" not in sys.modules:  # without PyTorch no object holds a state
            return function(*self.plain, **self.named)
        from tessera.frontend.capture.kept_state import check_kept, part_from, places_of, put_back

        origin = _origin(function)
        held = (("in", self.plain), ("in", dict(self.named)), *_closure(origin))
        if (owner := _owner(origin)) is not None:
            held = (*held, ("self", vars(owner)))
        modules = modules_of(function)
        places = places_of(modules, held)
        result = function(*self.plain, **self.named)
        put_back(places, result)
        if is_last:
            check_kept(places)
        else:
            part_from(places, modules, (tensor for _, tensor in self.tensors(function)))
        return result


def held_tensors(function: Callable[..., object]) -> list[tuple[str, torch.Tensor]]:
    """Tensors that a callable holds besides parameters and buffers, such as those of a cache."""
    from torch.nn import Module

    origin = _origin(function)
    module = getattr(origin, "__self__", origin)
    named = []
    for owner, part in module.named_modules() if isinstance(module, Module) else ():
        for name, value in vars(part).items():
            if not name.startswith("_"):
                named += named_tensors(f"{owner}.{name}" if owner else name, value)
    own = _owner(origin)
    for name, value in (*_closure(origin), *(vars(own).items() if own is not None else ())):
        named += named_tensors(name, value)
    return named


@dataclass(frozen=True, slots=True)
class KnownTensors:
    """The tensors of a call's inputs and model by name, inputs first; and the inputs on the
    host."""

    tensors: tuple[tuple[str, torch.Tensor, Role], ...] = ()
    notes: tuple[Diagnostic, ...] = ()


def known_tensors(
    function: Callable[..., object],
    inputs: Inputs,
    counts: Callable[[torch.Tensor], bool] = lambda tensor: True,
) -> KnownTensors:
    """The tensors of a call, taken before it: states that it replaces are still in place.

    Inputs come first, so that a cache that is passed in is not a weight. Modules that are not the
    callable's own are left out if their first tensor does not count (`modules_of`).
    """
    given = inputs.tensors(function)
    notes = tuple(on_host(name) for name, tensor in given if not tensor.is_cuda)
    had = (*named_parameters(function, counts), *held_tensors(function))
    every = [(*pair, Role.INPUT) for pair in given] + [(*pair, Role.WEIGHT) for pair in had]
    return KnownTensors(tuple(entry for entry in every if entry[1].is_cuda), notes)


def named_parameters(
    function: object, counts: Callable[[torch.Tensor], bool] = lambda tensor: True
) -> Iterator[tuple[str, torch.Tensor]]:
    """Named parameters and buffers of the modules behind a callable (`modules_of`).

    Parameters without a shape belong to a lazy module that was never called: nothing uses them.
    """
    from torch.nn.parameter import is_lazy

    roots = modules_of(function, counts)
    for number, module in enumerate(roots):
        prefix = f"model{number}." if len(roots) > 1 else ""
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if is_lazy(tensor):
                continue
            name = prefix + name.removeprefix("_orig_mod.")
            parts = list(tensors_in(tensor))
            for number, part in enumerate(parts):
                yield name if len(parts) == 1 else f"{name}.{number}", part


def modules_of(
    function: object, counts: Callable[[torch.Tensor], bool] = lambda tensor: True
) -> list[torch.nn.Module]:
    """The module that a callable is, or all modules that live and have parameters.

    Modules whose first tensor does not count are left out.
    """
    from torch.nn import Module

    origin = getattr(function, "_orig_mod", function)
    origin = getattr(origin, "__self__", origin)
    if isinstance(origin, Module):
        return [origin]
    gc.unfreeze()  # modules that a program has frozen are not among all objects
    every = [m for m in gc.get_objects() if issubclass(type(m), Module)]
    inner = {id(child) for module in every for child in module.children()}
    tops = [module for module in every if id(module) not in inner]
    owned = [(top, next(chain(top.parameters(), top.buffers()), None)) for top in tops]
    return [top for top, tensor in owned if tensor is not None and counts(tensor)]


def _owner(origin: Callable[..., object]) -> object | None:
    """The object that is called, or whose method is called, if it is not a PyTorch module."""
    from torch.nn import Module

    inner = inspect.unwrap(origin)
    if isinstance(inner, functools.partial):
        return _owner(inner.func)
    owner = getattr(inner, "__self__", inner)
    is_other = isinstance(owner, Module | ModuleType | type) or hasattr(owner, "__code__")
    return None if is_other or not hasattr(owner, "__dict__") else owner


def _closure(origin: Callable[..., object]) -> Iterator[tuple[str, object]]:
    """The variables in the closure of a callable, and the arguments of a `partial`."""
    from torch.nn import Module

    if isinstance(origin, functools.partial):
        yield from ((f"given{number}", value) for number, value in enumerate(origin.args))
        yield from origin.keywords.items()
        yield from _closure(origin.func)
        return
    inner = origin.forward if isinstance(origin, Module) else origin
    if not hasattr(inner, "__code__") and not hasattr(inner, "__func__"):
        inner = vars(type(inner)).get("__call__", inner)  # a callable object
    inner = inspect.unwrap(getattr(inner, "__func__", inner))
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(inner, "__closure__", None) or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # an empty cell
            continue


def _origin(function: Callable[..., object]) -> Callable[..., object]:
    """The callable that torch.compile was given."""
    origin: Callable[..., object] = getattr(function, "_orig_mod", function)
    return getattr(origin, "_torchdynamo_orig_callable", None) or origin


def _parameters(function: Callable[..., object]) -> list[str]:
    """The names of positional parameters."""
    from torch.nn import Module

    origin = _origin(function)
    try:
        signature = inspect.signature(origin.forward if isinstance(origin, Module) else origin)
    except (TypeError, ValueError):  # a builtin
        return []
    names = []
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            break
        names.append(parameter.name)
    return names
