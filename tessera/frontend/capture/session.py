"""Capture one call of a PyTorch callable.

In: a callable and its inputs, on a GPU. Out: a `Call`: what the call launches (a `RawCapture`), and
the call itself, which can be run once for the bytes of its memory before and after.

The callable runs a few times first, so that everything is compiled and tuned. Then one call is
captured as a CUDA graph (which runs nothing), and the graph is read.

Source: PyTorch 2.11, `torch.cuda.CUDAGraph`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.frontend.capture.cuda_graph import CapturedNodes, read_graph
from tessera.frontend.capture.graphs.graph_nodes import storages
from tessera.frontend.capture.graphs.into_graph import captured_into
from tessera.frontend.capture.graphs.tuning import tuned_slice
from tessera.frontend.capture.host_copies import made_on_host
from tessera.frontend.capture.inputs import Inputs, known_tensors
from tessera.frontend.capture.kernels import find_codes, find_sources
from tessera.frontend.capture.measured import kernel_times
from tessera.frontend.capture.memory import (
    Bytes,
    CapturedMemory,
    add_strangers,
    live_tensors,
)
from tessera.frontend.capture.problems import (
    fixed_constants,
    launches_nothing,
    not_captured,
    refusal,
)
from tessera.frontend.capture.ptx_sources import read_variables
from tessera.frontend.capture.raw import (
    MeasuredProduct,
    RawCapture,
    RawLaunch,
    RawMemcpy,
    RawMemset,
    RawNode,
    RawOperator,
    RawOther,
    RawRandom,
)
from tessera.frontend.capture.small_parts import copied_parts
from tessera.frontend.capture.tensors import check_plain, tensors_in
from tessera.frontend.capture.watch import Keeper, Watcher
from tessera.ir.program.program import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBytes:
    """The bytes of memory before and after the call, by buffer name, and the buffers that changed.

    `drawn` counts how far the generator of random numbers moved. `times` are those of its kernels,
    by name, where they were asked for and can be told.
    """

    before: dict[str, Bytes]
    after: dict[str, Bytes]
    changed: frozenset[str]
    drawn: int
    times: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A captured call, which has not run; `kept` keeps the memory that its nodes name alive.

    `returned` is what it gives back; `products` is what the compiler measured.
    """

    raw: RawCapture
    notes: tuple[Diagnostic, ...]
    memory: CapturedMemory
    graph: torch.cuda.CUDAGraph
    kept: object
    returned: object
    products: tuple[MeasuredProduct, ...] = ()

    def read(self, name: str) -> Bytes:
        """The current bytes of a buffer."""
        return self.memory.read(next(b for b in self.raw.buffers if b.name == name))

    def run(
        self,
        names: Iterable[str],
        *,
        data: bool = True,
        timed: bool = False,
        unread: Collection[str] = (),
    ) -> CallBytes:
        """Run it once, and look at the named buffers that last or are returned.

        Without `data` they stay on the GPU, where they may be larger than the host's memory: what
        changed is then known from digests. So do those that are `unread`. `timed`: kernels, too.
        """
        wanted = set(names)
        lasting = [b for b in self.raw.buffers if b.name in wanted and b.lasting]
        returned = [b for b in self.raw.buffers if b.name in wanted and b.role is Role.OUTPUT]
        begun = _generator().get_offset()
        times: tuple[tuple[str, float], ...] = ()

        def replay() -> None:
            nonlocal times
            if timed:
                times = kernel_times(self.replay)
            else:
                self.replay()

        marks = {b.name: self.memory.digest(b) for b in lasting}
        wanted = set() if not data else wanted - set(unread)
        before = {b.name: self.memory.read(b) for b in lasting if b.name in wanted}
        replay()
        changed = {b.name for b in lasting if self.memory.digest(b) != marks[b.name]}
        after = dict(before)  # bytes that are the same need not be there twice
        for buffer in (*lasting, *returned) if data else ():
            if buffer.name in changed or buffer.name not in marks:
                after[buffer.name] = self.memory.read(buffer)
        drawn = _generator().get_offset() - begun
        return CallBytes(
            before=before, after=after, changed=frozenset(changed), drawn=drawn, times=times
        )

    def replay(self) -> None:
        """Run it once more, and wait for it."""
        try:
            self.graph.instantiate()
            self.graph.replay()
            torch.cuda.synchronize()
        except RuntimeError as problem:
            raise not_captured(problem) from problem


@contextmanager
def on_one_gpu(function: Callable[..., object], inputs: Inputs) -> Iterator[None]:
    """Make the GPU that a module and its inputs are on the current one."""
    owned = function.parameters() if isinstance(function, torch.nn.Module) else ()
    tensors = [*tensors_in(inputs.plain), *tensors_in(inputs.named), *owned]
    indices = sorted({t.device.index for t in tensors if t.is_cuda})
    if len(indices) > 1:
        raise TesseraError.of(
            "TSR6002",
            f"the model is on {len(indices)} GPUs, and a trace is of one",
            notes=(f"on {', '.join(f'cuda:{index}' for index in indices)}",),
            hint="put it on one GPU; `tessc plan` splits the trace over several",
        )
    with torch.cuda.device(indices[0] if indices else torch.cuda.current_device()):
        yield


def capture(
    function: Callable[..., object],
    inputs: Inputs,
    keeper: Keeper,
    *,
    archs: Iterable[str] = (),
    given: Iterable[tuple[str, str]] = (),
    warm_ups: int = 3,
    copy_parts: bool = False,
) -> Call:
    """Capture one call. `keep_compiled(keeper)` must be in force since before compilation.

    `copy_parts`: nothing is compiled, so results that are small parts are copied here.
    """
    memory = CapturedMemory()
    with torch.no_grad():
        _warm_up(function, inputs, warm_ups)
        known = known_tensors(function, inputs)
        for name, tensor, role in known.tensors:
            memory.add_tensor(tensor, name, role, lasting=True)
        old = live_tensors()
        graph, outputs, watcher = _capture_graph(
            function, inputs, keeper, storages(old.values()) if copy_parts else None
        )
        operators, constants = watcher.operators, watcher.copies.constants
        sources = find_sources(given)
        graph_nodes = read_graph(int(graph.raw_cuda_graph()), sources.knows)
        if not graph_nodes.nodes:
            raise launches_nothing()
        for number, tensor in enumerate(constants):
            memory.add_tensor(tensor, f"constant{number}", Role.WEIGHT, lasting=True)
        _add_made(memory, outputs, keeper, old)
        unowned = add_strangers(memory, old, _words(graph_nodes, operators))
    fixed = [fixed_constants(len(constants))] if constants else []
    functions = {n.function: n.name for n in graph_nodes.nodes if isinstance(n, RawLaunch)}
    codes, others = find_codes(functions, archs, sources)
    raw = RawCapture(
        buffers=memory.in_order(),
        nodes=graph_nodes.nodes,
        operators=tuple(_renumbered(operators, graph_nodes.places)),
        codes=tuple(
            replace(code, variables=read_variables(code.function, code.variants[0].text))
            for code in codes
        ),
        after=graph_nodes.after,
        random=RawRandom(seed=_generator().initial_seed(), offset=_generator().get_offset()),
        unowned=unowned,
        skipped=graph_nodes.skipped,
        constants=memory.names_of(constants),
    )
    return Call(
        raw=raw,
        notes=(*known.notes, *fixed, *(warning("TSR6006", text) for text in others)),
        memory=memory,
        graph=graph,
        kept=(keeper.tensors, old, constants),
        returned=outputs,
    )


def _generator() -> torch.Generator:
    return torch.cuda.default_generators[torch.cuda.current_device()]


def _warm_up(function: Callable[..., object], inputs: Inputs, count: int) -> None:
    part = tuned_slice()
    stream = torch.cuda.Stream() if part is None else part.stream
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            for _ in range(count):
                inputs.call(function)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
    except TesseraError:
        raise
    except (Exception, SystemExit) as problem:  # whatever the model or its compiler raises
        raise refusal(problem) from problem


def _capture_graph(
    function: Callable[..., object], inputs: Inputs, keeper: Keeper, lasting: set[int] | None
) -> tuple[torch.cuda.CUDAGraph, object, Watcher]:
    from cuda.bindings import driver

    graph = torch.cuda.CUDAGraph(keep_graph=True)

    def under_way() -> object:
        """The graph that the current stream is captured into."""
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        status, *rest = driver.cuStreamGetCaptureInfo(stream)
        graphs = [thing for thing in rest if isinstance(thing, driver.CUgraph)]
        return graphs[0] if int(status) == 0 and graphs and int(graphs[0]) else None

    watcher = Watcher(keeper, under_way)
    # A capture that fails leaves the generator as if it went on.
    generator = _generator()
    random = generator.clone_state()
    keeper.is_on = True
    try:
        with captured_into(graph), made_on_host(), watcher.mode:
            outputs = inputs.call(function, is_last=True)
            if lasting is not None:
                outputs = copied_parts(outputs, lasting.__contains__)
    except (Exception, SystemExit) as problem:  # the model's, PyTorch's, the driver's, ours
        generator.graphsafe_set_state(random)
        if isinstance(problem, TesseraError):
            raise
        raise not_captured(problem) from problem
    finally:
        keeper.is_on = False
    watcher.copies.fill()
    return graph, outputs, watcher


def _add_made(
    memory: CapturedMemory, outputs: object, keeper: Keeper, old: Mapping[int, torch.Tensor]
) -> None:
    """Note what the call returns, and what it made on the way."""
    for number, tensor in enumerate(t for t in tensors_in(outputs) if t.is_cuda):
        name = "out" if number == 0 else f"out{number}"
        check_plain(tensor, f"the result `{name}`")
        is_old = tensor.untyped_storage().data_ptr() in old
        role = Role.WEIGHT if is_old else Role.OUTPUT
        memory.add_tensor(tensor, name, role, lasting=is_old)
    for number, tensor in enumerate(t for t in keeper.tensors if t.is_cuda):
        if tensor.untyped_storage().data_ptr() not in old:
            memory.add_tensor(tensor, f"t{number}", Role.TEMP, lasting=False)


def _words(graph_nodes: CapturedNodes, operators: Iterable[RawOperator]) -> Iterator[int]:
    """Everything that the call's nodes name and that may be an address."""
    for node in graph_nodes.nodes:
        yield from _addresses(node)
    for operator in operators:
        yield from (tensor.address for tensor in (*operator.reads, *operator.writes))


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
        case RawOther():
            return


def _renumbered(operators: Iterable[RawOperator], places: tuple[int, ...]) -> Iterator[RawOperator]:
    """Operators in terms of the nodes that do work; those that have none drop out."""
    for operator in operators:
        first, last = bisect_left(places, operator.first), bisect_left(places, operator.last)
        if last > first:
            yield replace(operator, first=first, last=last)
