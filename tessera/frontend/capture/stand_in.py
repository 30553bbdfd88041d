"""The GPU that is not there: what PyTorch is told of it while a model is built and called.

All names of PyTorch that are not part of its interface and that a capture on fake tensors needs are
here. Where a version does not have them, `TSR6014` says so; `TESTED` are the versions that were
tried.

- Tensors are `FakeTensor`s on the device "cuda": a shape, a type, strides, a storage, no memory.
- A build of PyTorch without CUDA has no guard for that device, and indexing asks for it. The guard
  of "meta" does nothing and serves for both; asked which device is the current one it says "meta",
  so "cuda" without a number becomes "cuda:0". A build with CUDA and no GPU makes its own guard.
- `torch.cuda.is_available()` and the like answer as on a machine with one GPU. What they say of it
  is what all GPUs of the table can do (sm_80).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from tessera.diagnostics import ExitCode, TesseraError

TESTED = "2.13"
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA, _META = 1, 14  # c10::DeviceType, which never changes
_CAPABILITY = (8, 0)
_TRUNCATED = "_no_grad_trunc_normal_"


@contextmanager
def fake_gpu(gpu: SimpleNamespace | None = None) -> Iterator[None]:
    """Make tensors on "cuda" fake, and answer queries about the GPU.

    `gpu` are the properties of a GPU to stand in for, whatever GPU there is.
    """
    is_real = torch.cuda.is_available()
    with ExitStack() as stack:
        if not is_real:
            _give_guard()
        elif gpu is not None:
            torch.cuda.init()  # C++ remembers the request
        if gpu is not None or not is_real:
            for name, answer in _answers(gpu or _any_gpu()).items():
                stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch.nn.Module, "_apply", _converter()))
        if hasattr(torch.nn.init, _TRUNCATED):
            stack.enter_context(mock.patch.object(torch.nn.init, _TRUNCATED, _truncated()))
        # It is not to be started for the sake of fakes.
        if hasattr(fake_tensor, "init_gpu_context"):
            stack.enter_context(mock.patch.object(fake_tensor, "init_gpu_context", always(None)))
        stack.enter_context(
            mock.patch.object(FakeTensorMode, "avoid_device_init", property(lambda self: True))
        )
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


def numbered_devices() -> AbstractContextManager[object]:
    """A mode in which "cuda" means "cuda:0" wherever a device is given."""
    first = torch.device("cuda", 0)

    def numbered(value: object) -> object:
        if isinstance(value, torch.device):
            return first if value.type == "cuda" else value
        is_name = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
        return first if is_name else value

    class NumberedDevices(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[torch.Tensor, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            if func is torch.Tensor.cuda:
                return args[0].to(first)
            named = {key: numbered(value) for key, value in (kwargs or {}).items()}
            return func(*map(numbered, args), **named)

    return NumberedDevices()


@contextmanager
def real_host() -> Iterator[None]:
    """Make operators work on real memory inside the context."""
    with unset_fake_temporarily():
        yield


def _converter() -> Callable[..., object]:
    """`Module._apply` for fake parameters: PyTorch's own swaps them, which fails for fakes that
    others know of. What was one parameter stays one."""
    converted: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]] = {}

    def apply(
        self: torch.nn.Module, fn: Callable[..., torch.Tensor], recurse: bool = True
    ) -> object:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, old in self._parameters.items():
            if old is not None:
                if id(old) not in converted:
                    with torch.no_grad():
                        new = torch.nn.Parameter(fn(old), requires_grad=old.requires_grad)
                    converted[id(old)] = old, new
                self._parameters[name] = converted[id(old)][1]
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    return apply


def _truncated() -> Callable[..., torch.Tensor]:
    """`trunc_normal_` for fakes: PyTorch's own draws again until it likes the numbers, and fakes
    have none."""
    draw: Callable[..., torch.Tensor] = getattr(torch.nn.init, _TRUNCATED)

    def drawn(
        tensor: torch.Tensor, mean: float, std: float, *more: object, **named: object
    ) -> torch.Tensor:
        if not isinstance(tensor, FakeTensor):
            return draw(tensor, mean, std, *more, **named)
        with torch.no_grad():
            return tensor.normal_(mean, std)

    return drawn


def _any_gpu() -> SimpleNamespace:
    return SimpleNamespace(
        name="a GPU that is not there",
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        multi_processor_count=108,
        total_memory=80 << 30,
        warp_size=32,
    )


def always(value: object) -> Callable[..., object]:
    """A function that returns the same value for all arguments."""
    return lambda *given, **named: value


def _answers(properties: SimpleNamespace) -> dict[str, Callable[..., object]]:
    """The answers of `torch.cuda` about a GPU."""
    return {
        "is_available": always(True),
        "init": always(None),
        "_lazy_init": always(None),
        "device_count": always(1),
        "current_device": always(0),
        "get_device_capability": always((properties.major, properties.minor)),
        "get_device_name": always(properties.name),
        "get_device_properties": always(properties),
        "is_bf16_supported": always(True),
        "synchronize": always(None),
        "empty_cache": always(None),
        "mem_get_info": always((properties.total_memory, properties.total_memory)),
        "manual_seed": always(None),
        "manual_seed_all": always(None),
    }


def _give_guard() -> None:
    """Let "cuda" have the guard of "meta", if it has none."""
    ensure = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if torch.version.cuda is not None and ensure is not None:
        ensure()
        return
    try:
        (library,) = (Path(torch.__file__).parent / "lib").glob("libc10.*")
        table = (ctypes.c_void_p * (_META + 1)).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError) as problem:
        raise does_not_fit(str(problem)) from None
    if not table[_META]:
        raise does_not_fit("the device `meta` has no guard")
    if not table[_CUDA]:
        table[_CUDA] = table[_META]


def does_not_fit(reason: str, tested: str = f"PyTorch {TESTED}") -> TesseraError:
    """An error for a PyTorch (or a compiler) that cannot stand in for a GPU."""
    return TesseraError.of(
        "TSR6014",
        f"this PyTorch ({torch.__version__}) cannot stand in for a GPU",
        notes=(reason,),
        hint=f"{tested} was tried; or capture on a machine with a GPU",
        exit_code=ExitCode.NO_DEVICE,
    )
