"""Every private name of PyTorch and Triton that compiling for a GPU that is not there needs.

In: the GPU to stand in for, and a `Listener` for launches and prices. Out: for as long as the
context lasts, torch.compile and Triton compile for that GPU; nothing is loaded, run or measured.

A name that a version does not have is reported (`versions`). In order:

- what `torch.cuda` and Dynamo's device interface say of the GPU, beyond `capture.stand_in`;
- Triton's driver: it loads nothing, and a launch is a call of `on_launch`;
- what Inductor would compute or measure on the GPU while it compiles: patterns are made on the
  host, uniform values too, and times of kernels come from `prices`;
- what compiled code calls in C++: allocations and views of tensors that have no memory.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tessera.frontend.capture.no_gpu.listener import Listener, TritonLaunch
from tessera.frontend.capture.no_gpu.versions import check_names, find, missing
from tessera.frontend.capture.problems import computes_on_host
from tessera.frontend.capture.products import Inner
from tessera.frontend.capture.stand_in import always, real_host

if TYPE_CHECKING:
    from torch._inductor.select_algorithm import ChoiceCaller

_INDUCTOR = "torch._inductor"
_GUARDS = "torch._C:_dynamo.guards"
_AUTOTUNER = f"{_INDUCTOR}.runtime.triton_heuristics:CachingAutotuner"
_SELECTOR = f"{_INDUCTOR}.select_algorithm:AlgorithmSelectorCache"
# What these modules remember of the GPU; it is forgotten when another one is stood in for.
_REMEMBERING = (
    "torch.utils._triton",
    f"{_INDUCTOR}.utils",
    f"{_INDUCTOR}.codecache:CacheBase",
    f"{_INDUCTOR}.runtime.hints:DeviceProperties",
    f"{_INDUCTOR}.runtime.triton_helpers",
)
_ALIGNMENT = 16
# Where a compiled graph has tensors and objects of its own.
_HELD = ("constants", "torchbind_constants")
_NOT_LOADED = object()
_HANDLES = itertools.count(1 << 52)


# The last listener gets the launches.
_LISTENERS: list[Listener] = []


@contextmanager
def standing_in(gpu: SimpleNamespace, ptx_version: int, listener: Listener) -> Iterator[None]:
    """Compile everything for a GPU with these properties; see the module's docstring."""
    with ExitStack() as stack:
        put = _Patches(stack)
        check_names()
        _forget()
        stack.callback(_forget)
        _LISTENERS.append(listener)
        stack.callback(_LISTENERS.pop)
        _stand_in_for_device(put, gpu)
        _stand_in_for_driver(put, gpu, ptx_version)
        _compile_on_host(put)
        _choose_unmeasured(put, listener)
        _run_on_fakes(put, listener)
        yield


class _Patches:
    """Replaces attributes until the stack is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, owner: str, name: str, value: object, *, is_new: bool = False) -> None:
        """`owner` is a module, or a module and what is in it: `torch.cuda`, `torch._C:_dynamo`."""
        holder = find(owner)
        if not is_new and not hasattr(holder, name):
            raise missing(f"{owner.replace(':', '.')}.{name}")
        self._stack.enter_context(mock.patch.object(holder, name, value, create=is_new))

    def wrap(self, owner: str, name: str, around: Callable[..., object]) -> None:
        """`around` gets what was there before, and gives what stands in for it."""
        self(owner, name, around(getattr(find(owner), name, None)))


def _forget() -> None:
    """Clear what is remembered of a GPU that was there before."""
    for place in _REMEMBERING:
        for value in list(vars(find(place)).values()):
            if callable(clear := getattr(getattr(value, "__func__", value), "cache_clear", None)):
                clear()
    # Kernels that Triton compiled at their launch, for a GPU that is not here. At their end they
    # would ask a driver to unload code that was never loaded.
    gc.unfreeze()
    for thing in gc.get_objects():
        if type(thing).__name__ == "CompiledKernel" and thing.module is _NOT_LOADED:
            thing.module = None
        if type(thing).__name__ == "JITFunction" and hasattr(thing, "device_caches"):
            thing.device_caches.clear()


# --- the device ---------------------------------------------------------------------------------


class _NoGuard(nullcontext):  # type: ignore[type-arg]
    """Makes no device the current one."""

    def __init__(self, *_: object) -> None:
        super().__init__()


def _stand_in_for_device(put: _Patches, gpu: SimpleNamespace) -> None:
    stream = SimpleNamespace(cuda_stream=0, stream_id=0, device_index=0, device_type=1)
    said: dict[str, object] = {
        "current_device": always(0),
        "set_device": always(None),
        "device_count": always(1),
        "current_stream": always(stream),
        "synchronize": always(None),
        "get_device_properties": always(gpu),
        "memory_allocated": always(0),
        "is_bf16_supported": always(True),
        "device": _NoGuard,
    }
    for name, value in said.items():
        put("torch.cuda", name, value)
        # Dynamo took these when it was imported.
        is_type = isinstance(value, type)
        kept = value if is_type else staticmethod(value)  # type: ignore[arg-type]
        put("torch._dynamo.device_interface:CudaInterface", name, kept)
    put("torch._dynamo.device_interface:CudaInterface", "get_raw_stream", staticmethod(always(0)))
    for name in ("exchange_device", "maybe_exchange_device"):
        put("torch._dynamo.device_interface:CudaInterface", name, staticmethod(always(0)))
        put("torch.cuda", f"_{name}", always(0))
    more: dict[str, object] = {
        "is_initialized": always(True),
        "_DeviceGuard": _NoGuard,
        "max_memory_allocated": always(0),
        "is_current_stream_capturing": always(False),
        "get_rng_state": always(torch.zeros(16, dtype=torch.uint8)),
        "set_rng_state": always(None),
    }
    for name, value in more.items():
        put("torch.cuda", name, value)
    put("torch.version", "cuda", torch.version.cuda or "13.0")
    for name in ("_cuda_getCurrentRawStream", "_cuda_getDevice", "_cuda_setDevice"):
        put("torch._C", name, always(0), is_new=True)
    for name in ("caching_worker_device_properties", "caching_worker_current_devices"):
        put("torch._dynamo.device_interface", name, {})


# --- Triton -------------------------------------------------------------------------------------


class _Launcher:
    """What Triton calls to launch a kernel."""

    def __init__(self, source: Inner, metadata: Inner) -> None:
        self.source, self.metadata = source, metadata

    def __call__(self, *given: Inner) -> None:
        grid, function, arguments = given[:3], given[4], given[9:]
        names = self.source.fn.arg_names
        types = {name: self.source.signature.get(name, "constexpr") for name in names}
        if len(arguments) != len(names):
            raise missing("a launcher with all arguments of a kernel")
        # Kernels outlive the capture that they were compiled for.
        _LISTENERS[-1].on_launch(
            TritonLaunch(
                function=function,
                grid=(int(grid[0]), int(grid[1]), int(grid[2])),
                parameters=types,
                arguments=dict(zip(names, arguments, strict=True)),
                metadata=self.metadata,
            )
        )


def _stand_in_for_driver(put: _Patches, gpu: SimpleNamespace, ptx_version: int) -> None:
    from triton.backends.compiler import GPUTarget

    number = 10 * gpu.major + gpu.minor
    sizes = {
        "max_shared_mem": gpu.shared_memory_per_block_optin,
        "multiprocessor_count": gpu.multi_processor_count,
        "max_num_regs": gpu.regs_per_multiprocessor,
        "warpSize": 32,
        "mem_bus_width": 5120,
        "mem_clock_rate": 2619000,
        "sm_clock_rate": 1755000,
    }

    class Utilities:
        """What Triton asks of the driver's library."""

        load_binary = staticmethod(lambda *_: (_NOT_LOADED, next(_HANDLES), 32, 0, 1024))
        get_device_properties = staticmethod(always(sizes))
        unload_module = staticmethod(always(None))

    class AbsentDriver:
        """A driver for one GPU."""

        utils = Utilities()
        launcher_cls = _Launcher
        get_current_device = staticmethod(always(0))
        set_current_device = staticmethod(always(None))
        get_current_stream = staticmethod(always(0))
        get_device_capability = staticmethod(always((gpu.major, gpu.minor)))
        is_active = staticmethod(always(True))
        get_current_target = staticmethod(always(GPUTarget("cuda", number, 32)))
        map_python_to_cpp_type = staticmethod(lambda kind: kind)
        get_active_torch_device = staticmethod(always(torch.device("cuda", 0)))
        get_device_interface = staticmethod(always(torch.cuda))

    driver = find("triton.runtime.driver:driver")
    stand_in = AbsentDriver()
    put("triton.runtime.driver:driver", "_active", stand_in, is_new=not hasattr(driver, "_active"))
    if driver.active is not stand_in:
        raise missing("triton.runtime.driver.driver._active")
    put(f"{_INDUCTOR}.runtime.triton_helpers", "set_driver_to_gpu", always(None))
    nvidia = find("triton.backends:backends").get("nvidia")
    if nvidia is None:
        raise missing("a backend of Triton for NVIDIA")
    put._stack.enter_context(
        mock.patch.object(nvidia.driver, "is_active", staticmethod(always(True)))
    )

    def with_version(parse: Callable[..., object]) -> Callable[..., object]:
        return lambda self, options: parse(self, {"ptx_version": ptx_version, **options})

    backend = "triton.backends.nvidia.compiler:CUDABackend"
    put.wrap(backend, "parse_options", with_version)
    # Machine code is never loaded, and making it would double the time.
    put(backend, "make_cubin", always(b"not assembled"))


# --- Inductor -----------------------------------------------------------------------------------


def _compile_on_host(put: _Patches) -> None:
    """Patterns and uniform values are computed on the host."""
    host = torch.device("cpu")
    # Numbers that are moved to the GPU would be moved there to be followed, even none of them.
    put("torch.fx.experimental.proxy_tensor", "CONSTANT_NUMEL_LIMIT", -1)

    def on_host(value: object) -> object:
        return host if isinstance(value, torch.device) and value.type == "cuda" else value

    # Patterns are traced with gradients, for which the GPU would be started. They are made once
    # per set of arguments: with PyTorch's own arguments, later compilations for the host share
    # them.
    fx_passes = f"{_INDUCTOR}.fx_passes"
    put.wrap(f"{fx_passes}.joint_graph", "lazy_init", lambda made: lambda *_: made(host))
    put.wrap(
        f"{fx_passes}.post_grad",
        "lazy_init",
        lambda made: lambda *given: made(*map(on_host, given)),
    )

    class UniformOnHost(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            named = {key: on_host(value) for key, value in (kwargs or {}).items()}
            return func(*map(on_host, args), **named)

    def deduced(deduce: Callable[..., object]) -> Callable[..., object]:
        def deduce_there(*given: object) -> object:
            with UniformOnHost():
                return deduce(*given)

        return deduce_there

    folder = f"{_INDUCTOR}.fx_passes.joint_graph:UniformValueConstantFolder"
    for name in ("_deduce_value", "_add_peephole_patterns"):  # the second one is younger
        if name == "_deduce_value" or hasattr(find(folder), name):
            put.wrap(folder, name, deduced)


def _choose_unmeasured(put: _Patches, listener: Listener) -> None:
    """Prices in place of measured times; of kernels that would be tuned the first candidate."""

    def benchmark(
        self: object,
        choices: Sequence[ChoiceCaller],
        nodes: Sequence[object],
        layout: object,
        *_: object,
        **__: object,
    ) -> Mapping[ChoiceCaller, float]:
        return listener.prices.times(choices, nodes, layout)

    put(_SELECTOR, "benchmark", benchmark)
    put.wrap(
        f"{_INDUCTOR}.choices:InductorChoices",
        "_finalize_template_configs",
        lambda made: lambda *given, **named: listener.prices.best_first(made(*given, **named)),
    )
    put(_SELECTOR, "make_precompile_fn", always(always({})))

    def first_config(work: Callable[..., object]) -> Callable[..., object]:
        def precompile(self: Inner) -> object:
            """The first way to cut a kernel; the others if it does not compile."""
            every = self.configs
            if every and len(every) > 1:
                self.configs = every[:1]
                try:
                    return work(self)
                except Exception:  # the compiler's errors are of many kinds
                    self.configs = every
            return work(self)

        return precompile

    put.wrap(_AUTOTUNER, "_precompile_worker", first_config)

    def keep_first(self: Inner, *_: object, **__: object) -> None:
        self.launchers = self.launchers[:1]

    put(_AUTOTUNER, "autotune_to_one_config", keep_first)

    def unless_held(save: Callable[..., object]) -> object:
        def keep(key: str, graph: Inner, *given: object, **named: object) -> None:
            """Keep a compiled graph that holds no tensors: those of this capture have no memory."""
            if not any(getattr(graph, held, True) for held in _HELD):
                save(key, graph, *given, **named)

        return staticmethod(keep)

    put.wrap(f"{_INDUCTOR}.codecache:FxGraphCache", "_save_graph", unless_held)
    put(_AUTOTUNER, "coordinate_descent_tuning", lambda self, launcher, *_, **__: launcher)


# --- compiled code ------------------------------------------------------------------------------


def _run_on_fakes(put: _Patches, listener: Listener) -> None:
    def empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda:0")

    def view(
        tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0
    ) -> torch.Tensor:
        return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

    put(_GUARDS, "_empty_strided_cuda", empty, is_new=True)
    put(_GUARDS, "_reinterpret_tensor", view)

    def address(self: torch.Tensor) -> int:
        return listener.address_of(self) if isinstance(self, FakeTensor) else 0

    def aligned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()

    # Inductor and Triton look at addresses to know how they are aligned.
    if hasattr(find(_GUARDS), "copy_if_misaligned"):
        put(_GUARDS, "copy_if_misaligned", aligned)
    put("torch._subclasses.fake_tensor:FakeTensor", "data_ptr", address)
    item = torch.Tensor.item

    def number(self: torch.Tensor) -> object:
        """What a tensor of the host holds, which kernels take as a number."""
        if isinstance(self, FakeTensor) or self.is_cuda:
            return item(self)
        with real_host():
            return item(self)

    put("torch:Tensor", "item", number)

    def checked(before: Callable[..., Callable[..., object]]) -> Callable[..., object]:
        """Code for the host that would read memory of tensors that have none."""

        def bound(*given: object) -> Callable[..., object]:
            run = before(*given)

            def call(*tensors: object) -> object:
                if any(isinstance(tensor, FakeTensor) for tensor in tensors):
                    raise computes_on_host()
                return run(*tensors)

            return call

        return bound

    put.wrap(f"{_INDUCTOR}.async_compile:AsyncCompile", "cpp_pybinding", checked)
