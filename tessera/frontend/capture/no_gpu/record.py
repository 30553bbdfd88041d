"""Record what one call of a PyTorch callable would launch on a GPU that is not there.

In: a function that makes a callable and its inputs, the GPUs to compile for, a route. Out: a
`RawRecord` by the rules of the capture on a GPU: launches with PTX for every one of the GPUs, and
library calls.

The call runs twice on tensors without memory: the first time everything is compiled, the second
time is recorded. Launches come from the stand-in for Triton's driver (`private_names`), library
calls from a dispatch mode, in one order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

from tessera.diagnostics import TesseraError, warning
from tessera.frontend.cache.code_digest import code_digest
from tessera.frontend.capture.graphs.tuning import chosen_by
from tessera.frontend.capture.host_copies import HostCopies
from tessera.frontend.capture.inputs import Inputs, known_tensors
from tessera.frontend.capture.kept_products import made_by
from tessera.frontend.capture.kernels import KernelSources, find_codes, find_sources
from tessera.frontend.capture.meta.record import (
    RawRecord,
    Recording,
    called,
    is_fake,
    leaves_the_gpu,
    made_record,
    recorder,
)
from tessera.frontend.capture.meta.whole_attention import whole_attention
from tessera.frontend.capture.no_gpu.listener import Listener, TritonLaunch
from tessera.frontend.capture.no_gpu.private_names import standing_in
from tessera.frontend.capture.no_gpu.versions import untested
from tessera.frontend.capture.operator_mode import call_own, name_of, operator_mode
from tessera.frontend.capture.products import CutPrices, Inner, ProductPrices
from tessera.frontend.capture.quiet import quiet_compiler
from tessera.frontend.capture.raw import RawCode, RawLaunch, RawRandom
from tessera.frontend.capture.routes import compiled, fresh_compiler, own_kernels, plain_attention
from tessera.frontend.capture.small_parts import copied_parts
from tessera.frontend.capture.stand_in import fake_gpu, numbered_devices
from tessera.frontend.capture.tensors import tensors_in
from tessera.frontend.capture.watch import operator_of
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.architecture import arch_number, limits_of
from tessera.ir.choices import Route
from tessera.ir.plan.machine import Gpu
from tessera.ir.ptx.syntax import Module

Made = tuple[Callable[..., object], Inputs]
# The PTX version that kernels are written in, which drivers from CUDA 12.0 on read, and those of
# architectures that are younger.
_VERSION = 80
_VERSIONS = {100: 86, 101: 86, 103: 88, 110: 90, 120: 87, 121: 88}
# With fewer SMs Inductor makes no kernels for products.
_MANY = 80
_FORMATS = {"fp32": "<f", "f32": "<f", "fp64": "<d", "f64": "<d", "fp16": "<e"}
# The first line of every kernel's text.
NOT_MEASURED = "// tiles not measured: chosen"
# Names of kernels whose tiles are priced: products of Inductor's, and kernels of our own.
_BY_MODEL = ("triton_tem_", "attention", "grouped_product")
_OWN = "tessera"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOrder:
    """What to compile for and how: the GPUs, further architectures, the route, the backends for
    products, the prices of tiles (`priced`), and whether calls of all sizes round alike."""

    gpus: tuple[Gpu, ...]
    archs: tuple[str, ...]
    route: str
    backends: str
    priced: CutPrices
    texts: tuple[tuple[str, str], ...] = ()
    same_bits: bool = False


def record_launches(
    make: Callable[[], Made], wanted: CompileOrder, heard: Callable[[str], None]
) -> RawRecord:
    """Make a callable, compile it, and note what a call of it launches."""
    recording = _Launches()
    first = min(wanted.gpus, key=lambda gpu: arch_number(gpu.arch))
    properties = _properties(first, wanted.gpus)
    archs = tuple(dict.fromkeys((*(gpu.arch for gpu in wanted.gpus), *wanted.archs)))
    listener = Listener(
        on_launch=recording.launch,
        prices=ProductPrices(wanted.priced, heard),
        address_of=recording.addresses.of_tensor,
    )
    notes = untested()
    with ExitStack() as stack:
        stack.enter_context(fake_gpu(properties))
        stack.enter_context(torch.no_grad())
        with numbered_devices(), recorder(recording):
            function, inputs = make()
        version = _ptx_version(archs)
        stack.enter_context(standing_in(properties, version, listener))
        stack.enter_context(fresh_compiler(apart=" without machine code"))
        stack.enter_context(quiet_compiler(lambda name: None))
        stack.enter_context(plain_attention(wanted.route))
        stack.enter_context(own_kernels(wanted.route, _made_by(wanted, properties, version)))
        stack.enter_context(chosen_by(wanted.priced.fastest))
        if wanted.route in (Route.EAGER, Route.AS_IS):
            stack.enter_context(whole_attention(recording))
        route, backends, same = wanted.route, wanted.backends, wanted.same_bits
        call = compiled(function, route, backends, measured=False, same_bits=same)
        recording.is_on = True  # addresses and launches of the first call are not kept
        called(call, inputs, is_last=False)
        recording.clear()
        known = known_tensors(function, inputs, is_fake)
        with _launch_recorder(recording):
            result = called(call, inputs, is_last=True)
            if wanted.route == Route.EAGER:
                result = copied_parts(result, recording.is_older)
        recording.is_on = False
        record = made_record(recording, known, result)
        launches = [node for node in record.raw.nodes if isinstance(node, RawLaunch)]
        sources = find_sources(wanted.texts)
        functions = {node.function: node.name for node in launches}
        codes, problems = find_codes(functions, archs, sources)
        nodes = tuple(_completed(record.raw.nodes, sources))
    raw = replace(
        record.raw,
        nodes=nodes,
        codes=tuple(map(_marked, codes)),
        random=RawRandom(seed=0, offset=0),
    )
    said = (*notes, *record.notes, *(warning("TSR6006", text) for text in problems))
    return replace(record, raw=raw, notes=said)


def _made_by(wanted: CompileOrder, properties: SimpleNamespace, version: int) -> str:
    """All that decides the code of a graph and that torch.compile does not know of: the GPUs, what
    it is told of them, and all code of ours, for tiles are priced by the model of durations."""
    told = (
        made_by(wanted.route, wanted.backends, 0),
        wanted.gpus,
        wanted.archs,
        properties,
        version,
    )
    return code_digest(("/**",), repr(told).encode())


def _marked(code: RawCode) -> RawCode:
    """With a first line of every text that says how tiles were chosen."""

    def mark(text: str) -> str:
        by_model = any(f".entry {name}" in text for name in _BY_MODEL)
        return f"{NOT_MEASURED} by {'the model of durations' if by_model else 'rule'}\n{text}"

    variants = tuple(replace(v, text=mark(v.text)) for v in code.variants)
    return replace(code, variants=variants)


def _ptx_version(archs: Iterable[str]) -> int:
    return max(_VERSIONS.get(arch_number(arch), _VERSION) for arch in archs)


def _properties(first: Gpu, gpus: Sequence[Gpu]) -> SimpleNamespace:
    """The properties of a GPU for PyTorch: the oldest one, with the least that all of them have."""
    number = arch_number(first.arch)
    shared = min(limits_of(gpu.arch).cta_shared_bytes for gpu in gpus)
    return SimpleNamespace(
        name=f"{first.name}, not there",
        major=number // 10,
        minor=number % 10,
        multi_processor_count=max(first.sms, _MANY),
        total_memory=min(gpu.memory_bytes for gpu in gpus),
        warp_size=32,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=limits_of(first.arch).threads,
        max_threads_per_block=1024,
        L2_cache_size=first.l2_bytes,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=limits_of(first.arch).shared_bytes,
        gcnArchName="",
        is_integrated=0,
        clock_rate=round(first.clock_mhz * 1e3),
    )


class _Launches(Recording):
    """Launches and library calls, in order."""

    def clear(self) -> None:
        """Forget what was noted so far."""
        self.operators, self.nodes, self.made, self.copies = [], [], [], HostCopies()

    def launch(self, launch: TritonLaunch) -> None:
        """Note a launch of a kernel of Triton's."""
        if not self.is_on or not all(launch.grid):
            return
        metadata = launch.metadata
        arguments = [
            self._argument(name, kind, launch.arguments[name])
            for name, kind in launch.parameters.items()
            if kind != "constexpr"
        ]
        clusters = tuple(int(size) for size in getattr(metadata, "cluster_dims", (1, 1, 1)))
        size = int(getattr(metadata, "global_scratch_size", 0) or 0)
        if size:
            ctas = launch.grid[0] * launch.grid[1] * launch.grid[2] * metadata.num_ctas
            arguments.append(self._scratch(size * ctas))
        self.nodes.append(
            RawLaunch(
                name=metadata.name,
                function=launch.function,
                grid=launch.grid,
                block=(int(metadata.num_warps) * 32, 1, 1),
                shared_bytes=int(metadata.shared),
                arguments=tuple(arguments),
                cluster=(clusters[0], clusters[1], clusters[2]) if max(clusters) > 1 else None,
                cooperative=bool(getattr(metadata, "launch_cooperative_grid", False)),
            )
        )

    def add(
        self,
        func: torch._ops.OpOverload,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
    ) -> None:
        """Note a call; one that is given memory of the host beside that of the GPU is refused:
        what it would copy is not known, and a trace does not end on the host."""
        given = list(tensors_in((args, kwargs)))
        hosted = any(not tensor.is_cuda and tensor.dim() for tensor in given)
        if hosted and any(tensor.is_cuda for tensor in given):
            if not given[0].is_cuda and func._schema.is_mutable:
                raise leaves_the_gpu(func)
            raise TesseraError.of(
                "TSR6003",
                f"the model copies from the host to the GPU (`{name_of(func)}`)",
                hint="put the tensor on the GPU (`.cuda()`) before the call",
            )
        super().add(func, args, kwargs, result)

    def draw(
        self,
        func: torch._ops.OpOverload,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
    ) -> None:
        """Note a draw: a trace holds those of seeds."""
        self._note(operator_of(func, args, kwargs, result, self._nodes(), self._place))

    def _scratch(self, size: int) -> bytes:
        made = torch.empty(size, dtype=torch.uint8, device="cuda:0")
        self.made.append(made)
        return struct.pack("<Q", self._place(made))

    def _argument(self, name: str, kind: object, value: Inner) -> bytes:
        """The bytes of an argument."""
        if not isinstance(kind, str) or kind.startswith("tensordesc"):
            raise TesseraError.of(
                "TSR6002",
                f"a kernel takes `{name}` as {kind}, which cannot be captured without a GPU",
                hint="capture on a machine with a GPU, or pass it as plain arguments",
            )
        if kind.startswith("*"):
            return struct.pack("<Q", value if isinstance(value, int) else self._place(value))
        if kind in _FORMATS:
            return struct.pack(_FORMATS[kind], value)
        if kind == "bf16":
            return struct.pack("<f", value)[2:]
        number = int(value)
        size = max(1, int(kind.lstrip("iu")) // 8)
        return number.to_bytes(size, "little", signed=number < 0)


def _completed(nodes: Iterable[Inner], sources: KernelSources) -> Iterator[Inner]:
    """Launches with the pointers to scratch memory that Triton adds to every kernel, here none."""
    counts: dict[int, int] = {}
    for node in nodes:
        if isinstance(node, RawLaunch):
            if node.function not in counts:
                text = str(sources.triton[node.function].asm["ptx"])
                (kernel,) = _module(text, node.name).kernels()
                counts[node.function] = len(kernel.parameters)
            missing = counts[node.function] - len(node.arguments)
            node = replace(node, arguments=(*node.arguments, *missing * (bytes(8),)))
        yield node


def _module(text: str, name: str) -> Module:
    """The module of a compiled kernel; raises if its GPU lacks an instruction."""
    try:
        return parse_module(text, name)
    except TesseraError as problem:
        first, *others = problem.diagnostics
        arch = next((line.split()[1] for line in text.splitlines() if ".target" in line), "")
        note = f"in the code of the kernel `{name}` for {arch.rstrip(',')}"
        hint = "name GPUs that have it (`--for h100`), or leave it out of the kernel"
        first = replace(first, notes=(*first.notes, note), hint=first.hint or hint)
        raise TesseraError((first, *others)) from None


def _launch_recorder(recording: _Launches) -> AbstractContextManager[object]:
    """The dispatch mode that notes library calls beside launches."""

    def call(
        mode: AbstractContextManager[object],
        func: torch._ops.OpOverload,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        if func.namespace == _OWN:
            return call_own(mode, func, args, kwargs)
        result = func(*args, **kwargs)
        if recording.is_on:
            recording.add(func, args, kwargs, result)
        return result

    return operator_mode(call, compiled=True)
