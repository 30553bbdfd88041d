"""State that a model keeps between calls by replacing an old tensor with a new one.

`self.state = f(self.state, x)` gives a state other memory in every call, and a trace has the memory
of one call: the next request would read the old state again. So after a call the new tensor is
copied into the old one, and the old tensor is put back: the state keeps its memory.

In: a callable, its arguments, and its modules. Out: the places (`KeptPlace`), taken before a call,
which `put_back` restores after it. Places are attributes of modules, their buffers, and the
elements of objects, lists and dictionaries that modules, arguments or closures hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import torch

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.graphs.graph_nodes import storage_of
from tessera.frontend.capture.tensors import tensors_in

_PLAIN = (bool, int, float, complex, str, bytes)
_DEEPEST = 6
Container = dict[str | int, object] | list[object]


@dataclass(frozen=True, slots=True, eq=False)
class KeptPlace:
    """A place that holds a tensor: a key of a container; `is_model`: the model holds it."""

    name: str
    container: Container
    key: str | int
    tensor: torch.Tensor
    is_model: bool

    def content(self) -> object:
        """The current value."""
        try:
            return self.container[self.key]  # type: ignore[index]
        except (KeyError, IndexError):
            return None

    def fill(self) -> None:
        """Put the tensor back."""
        self.container[self.key] = self.tensor  # type: ignore[index]


def places_of(
    modules: Iterable[torch.nn.Module], held: Iterable[tuple[str, object]]
) -> list[KeptPlace]:
    """Places of tensors in modules and in other objects that are held, each with its name."""
    every: list[KeptPlace] = []
    seen: set[int] = set()
    for module in modules:
        for owner, part in module.named_modules():
            dot = f"{owner}." if owner else ""
            attributes: dict[str | int, object] = vars(part)
            for key, value in attributes.items():
                if not str(key).startswith("_"):
                    every += _inside(f"{dot}{key}", attributes, key, value, seen, is_model=True)
            buffers: dict[str | int, object] = part._buffers
            for key, value in buffers.items():
                every += _inside(f"{dot}{key}", buffers, key, value, seen, is_model=True)
    for name, value in held:
        for way, container, key, inner in _parts(value):
            every += _inside(f"{name}.{way}", container, key, inner, seen, is_model=False)
    return every


def _inside(
    name: str,
    container: Container,
    key: str | int,
    value: object,
    seen: set[int],
    *,
    is_model: bool,
    depth: int = 0,
) -> Iterator[KeptPlace]:
    if isinstance(value, torch.Tensor):
        # a tensor without a shape belongs to a lazy module, which gives it a shape in place
        is_plain = not hasattr(value, "__tensor_flatten__") and value.layout is torch.strided
        if is_plain and not torch.nn.parameter.is_lazy(value):
            yield KeptPlace(name, container, key, value, is_model)
        return
    is_module = isinstance(value, torch.nn.Module)
    if is_module or depth == _DEEPEST or id(value) in seen:
        return
    seen.add(id(value))
    for way, inside, inner, part in _parts(value):
        named = f"{name}.{way}"
        yield from _inside(named, inside, inner, part, seen, is_model=is_model, depth=depth + 1)


def _parts(value: object) -> Iterator[tuple[str, Container, str | int, object]]:
    """The elements of a list, a dictionary or an object."""
    if value is None or isinstance(value, (*_PLAIN, type, ModuleType)) or callable(value):
        return
    if isinstance(value, list):
        for number, part in enumerate(value):
            yield str(number), value, number, part
        return
    if isinstance(value, tuple):  # the elements of a tuple never change
        for number, part in enumerate(value):
            for way, container, key, inner in _parts(part):
                yield f"{number}.{way}", container, key, inner
        return
    inside = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    for key, part in list(inside.items()):
        if isinstance(key, str | int):
            yield str(key), inside, key, part


def put_back(places: list[KeptPlace], result: object) -> None:
    """Copy tensors that replaced others into the old tensors, if both are of the same kind.

    Raises TSR6003 if the call returns a tensor that it has replaced.
    """
    changed = [(place, new) for place in places if (new := _successor(place)) is not None]
    if not changed:
        return
    old = {storage_of(place.tensor) for place, _ in changed}
    if any(storage_of(tensor) in old for tensor in tensors_in(result)):
        names = ", ".join(f"`{place.name}`" for place, _ in changed[:3])
        raise TesseraError.of(
            "TSR6003",
            f"the call returns the tensor that it replaces by another ({names})",
            hint="return a copy (`.clone()`), or change the tensor in place (`.copy_()`)",
        )
    # A tensor that moves from one place to another is read before it is overwritten.
    sources = [new.clone() if storage_of(new) in old else new for _, new in changed]
    done = set()
    for (place, _), source in zip(changed, sources, strict=True):
        if id(place.tensor) not in done:
            place.tensor.copy_(source)
            done.add(id(place.tensor))
        place.fill()


def part_from(
    places: list[KeptPlace], modules: Iterable[torch.nn.Module], given: Iterable[torch.Tensor]
) -> None:
    """Give the model its own copy of arguments that it has stored in a call: the next call may have
    other arguments."""
    arguments = {storage_of(tensor) for tensor in given}
    before = {(id(place.container), place.key): storage_of(place.tensor) for place in places}
    for place in places_of(modules, ()):
        storage = storage_of(place.tensor)
        was = before.get((id(place.container), place.key))
        if storage in arguments and was != storage:
            replace(place, tensor=place.tensor.clone()).fill()


def check_kept(places: list[KeptPlace]) -> None:
    """Raise TSR6003 if the model holds a tensor of another size than before the call."""
    for place in places:
        new = place.content()
        if place.is_model and isinstance(new, torch.Tensor) and new.shape != place.tensor.shape:
            before, after = list(place.tensor.shape), list(new.shape)
            raise TesseraError.of(
                "TSR6003",
                f"the call replaces `{place.name}` of {before} by a tensor of {after}: a"
                " trace holds one set of shapes",
                hint="give it its final size, and write into it in place (a static cache)",
            )


def _successor(place: KeptPlace) -> torch.Tensor | None:
    """The tensor that replaced another in the call, if both are of the same kind."""
    old, new = place.tensor, place.content()
    if new is old or not isinstance(new, torch.Tensor) or hasattr(new, "__tensor_flatten__"):
        return None
    if _kind(new) != _kind(old):
        return None
    is_same = storage_of(new) == storage_of(old) and new.stride() == old.stride()
    if is_same and new.storage_offset() == old.storage_offset():
        return None
    # A tensor whose elements overlap in memory cannot be written to.
    return new if torch._debug_has_internal_overlap(old) == 0 else None


def _kind(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout
