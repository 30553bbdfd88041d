"""Capture one call of a PyTorch callable.

In: a callable and its inputs, on a GPU. Out: a `RawCapture`, the contents of all lasting memory as
it is before the call, and what outputs and states hold after it.

The callable runs a few times first, so that everything is compiled and tuned. Then one call is
captured as a CUDA graph (which runs nothing), the graph is read, and run once for the reference.

Source: design, section 10; PyTorch 2.11, `torch.cuda.CUDAGraph`.
"""

# torch is imported late and has no types here.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import gc
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.cuda_graph import read_nodes
from tessera.frontend.capture.kernels import find_codes, functions_with_code
from tessera.frontend.capture.problems import not_captured, refusal
from tessera.frontend.capture.raw import (
    RawBuffer,
    RawCapture,
    RawLaunch,
    RawMemcpy,
    RawMemset,
    RawNode,
    RawOperator,
)
from tessera.frontend.capture.watch import Keeper, data_type, tensors_in, watcher
from tessera.ir.program import Role

Bytes = npt.NDArray[np.uint8]
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_$.]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A capture with the bytes of its buffers: before the call, and what it leaves."""

    raw: RawCapture
    before: dict[str, Bytes]
    after: dict[str, Bytes]
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """Buffers by the address of their storage."""

    buffers: dict[int, RawBuffer] = field(default_factory=dict)
    storages: dict[int, Any] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add(self, tensor: Any, name: str, role: Role, *, lasting: bool) -> None:
        """Note a tensor's memory, unless it is known."""
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if not address or address in self.buffers or not storage.nbytes():
            return
        whole = tensor.is_contiguous() and tensor.numel() * tensor.itemsize == storage.nbytes()
        kind = data_type(tensor.dtype)
        plain = whole and kind is not None
        self.storages[address] = storage
        self.buffers[address] = RawBuffer(
            name=self._free_name(name), address=address, bytes=storage.nbytes(), role=role,
            lasting=lasting, dtype=kind if plain else None,
            shape=tuple(tensor.shape) if plain else None,
        )  # fmt: skip

    def holds(self, address: int) -> bool:
        """Whether an address is inside a known buffer."""
        return any(b.address <= address < b.address + b.bytes for b in self.buffers.values())

    def _free_name(self, wanted: str) -> str:
        name = _NOT_A_NAME.sub("_", wanted) or "b"
        name = name if name[0].isalpha() or name[0] in "_$" else f"b{name}"
        tried, number = name, 1
        while tried in self.names:
            number += 1
            tried = f"{name}_{number}"
        self.names.add(tried)
        return tried


def capture(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    keeper: Keeper,
    *,
    archs: Iterable[str] = (),
    given: Mapping[int, str] | None = None,
    warm_ups: int = 3,
) -> Captured:
    """Capture one call. `keep_compiled(keeper)` must be in force since before compilation."""
    import torch

    with torch.no_grad():
        _warm_up(function, inputs, warm_ups)
        found = _Found()
        _add_known(found, function, inputs)
        old = _live_tensors()
        graph, outputs, operators = _capture_graph(function, inputs, keeper)
        nodes = read_nodes(int(graph.raw_cuda_graph()), functions_with_code(given or {}))
        for number, tensor in enumerate(tensors_in(outputs)):
            name = "out" if number == 0 else f"out{number}"
            found.add(tensor, name, Role.OUTPUT, lasting=False)
        for number, tensor in enumerate(t for t in keeper.tensors if t.is_cuda):
            if tensor.untyped_storage().data_ptr() not in old:
                found.add(tensor, f"t{number}", Role.TEMP, lasting=False)
        _add_strangers(found, old, nodes, operators)
        lasting = {a: b for a, b in found.buffers.items() if b.lasting}
        before = {b.name: _read(found.storages[a]) for a, b in lasting.items()}
        graph.instantiate()
        graph.replay()
        torch.cuda.synchronize()
        after = {
            b.name: _read(found.storages[a])
            for a, b in found.buffers.items()
            if b.lasting or b.role is Role.OUTPUT
        }
    functions = dict.fromkeys(n.function for _, n in nodes if isinstance(n, RawLaunch))
    codes, problems = find_codes(functions, archs, given or {})
    places = [place for place, _ in nodes]
    raw = RawCapture(
        buffers=tuple(found.buffers.values()),
        nodes=tuple(node for _, node in nodes),
        operators=tuple(_renumbered(operators, places)),
        codes=tuple(codes),
    )
    return Captured(raw=raw, before=before, after=after, problems=tuple(problems))


def _warm_up(function: Callable[..., Any], inputs: tuple[Any, ...], count: int) -> None:
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            for _ in range(count):
                function(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
    except TesseraError:
        raise
    except Exception as problem:  # whatever the model or its compiler raises
        raise refusal(problem) from problem


def _capture_graph(
    function: Callable[..., Any], inputs: tuple[Any, ...], keeper: Keeper
) -> tuple[Any, Any, list[RawOperator]]:
    import torch
    from cuda.bindings import driver

    graph = torch.cuda.CUDAGraph(keep_graph=True)

    def under_way() -> Any:
        """The graph that the current stream is captured into."""
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        status, *rest = driver.cuStreamGetCaptureInfo(stream)
        graphs = [thing for thing in rest if isinstance(thing, driver.CUgraph)]
        return graphs[0] if int(status) == 0 and graphs and int(graphs[0]) else None

    mode = watcher(keeper, under_way)
    keeper.is_on = True
    try:
        with torch.cuda.graph(graph), mode:
            outputs = function(*inputs)
    except RuntimeError as problem:
        raise not_captured(problem) from problem
    finally:
        keeper.is_on = False
    return graph, outputs, mode.operators


def _add_known(found: _Found, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """Inputs first, so that a cache that is passed in is no weight; then parameters."""
    for number, tensor in enumerate(tensors_in(inputs)):
        if tensor.is_cuda:
            found.add(tensor, f"in{number}", Role.INPUT, lasting=True)
    for name, tensor in _parameters(function):
        if tensor.is_cuda:
            found.add(tensor, name, Role.WEIGHT, lasting=True)


def _parameters(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Named parameters and buffers of the module, or of all modules that live."""
    import torch

    origin = getattr(function, "_orig_mod", function)
    if isinstance(origin, torch.nn.Module):
        roots = [origin]
    else:
        every = [m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module)]
        inner = {id(child) for module in every for child in module.children()}
        roots = [module for module in every if id(module) not in inner]
    for number, module in enumerate(roots):
        prefix = f"m{number}." if len(roots) > 1 else ""
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            yield prefix + name.removeprefix("_orig_mod."), tensor


def _live_tensors() -> dict[int, Any]:
    """A tensor for every storage on the GPU that is alive, by address."""
    import torch

    live: dict[int, Any] = {}
    for thing in gc.get_objects():
        try:
            # Other subclasses stand for tensors that are not there, or wrap some.
            if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.is_cuda:
                live.setdefault(thing.untyped_storage().data_ptr(), thing)
        except (RuntimeError, ReferenceError):
            continue
    return live


def _add_strangers(
    found: _Found,
    live: dict[int, Any],
    nodes: list[tuple[int, RawNode]],
    operators: list[RawOperator],
) -> None:
    """Memory that the call names and nobody has claimed: live tensors of the caller's own."""
    words = {word for _, node in nodes for word in _addresses(node)}
    words |= {tensor.address for one in operators for tensor in (*one.reads, *one.writes)}
    words = {word for word in words if not found.holds(word)}
    for address in sorted(live):
        size = live[address].untyped_storage().nbytes()
        if any(address <= word < address + size for word in words):
            found.add(live[address], f"c{len(found.buffers)}", Role.WEIGHT, lasting=True)


def _addresses(node: RawNode) -> Iterator[int]:
    match node:
        case RawLaunch():
            for argument in node.arguments:
                for at in range(0, len(argument) - 7, 8):
                    yield int.from_bytes(argument[at : at + 8], "little")
        case RawMemset():
            yield node.address
        case RawMemcpy():
            yield from (node.target, node.source)


def _read(storage: Any) -> Bytes:
    """The bytes of a storage, on the host."""
    import torch

    flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return flat.cpu().numpy().copy()


def _renumbered(operators: list[RawOperator], places: list[int]) -> Iterator[RawOperator]:
    """Operators in terms of the nodes that do work; those that have none drop out."""
    for operator in operators:
        first, last = bisect_left(places, operator.first), bisect_left(places, operator.last)
        if last > first:
            yield replace(operator, first=first, last=last)
