"""What library calls need beside their operands: memory of their own, and to know their SMs.

In: PyTorch, and the stream that a call goes to. Out: contexts in which it is made.

A call inside a graph uses the same memory whenever the graph runs. So what libraries and operators
allocate while they are captured comes from a pool that serves one stream only (what is on a stream
runs one after the other), cuBLAS's workspace too. Pools are never given back: a stream that is made
later may have the same handle, and then finds the workspace that PyTorch still holds for it.

cuBLAS chooses how to compute a product by the SMs that it has: those of the whole GPU, unless it
is told (`told_sms`). Another choice may round otherwise. So on a slice it is told only where a
trial on random numbers gave the same bytes with and without (`first_run`): results do not depend on
where a step runs.

Source: PyTorch 2.11 (`torch.cuda.MemPool`), cuBLAS 13 (`cublasSetSmCountTarget`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.backend.cuda.api import Handle

if TYPE_CHECKING:
    import torch

# With fewer elements, bytes could be the same by chance.
_LEAST_TRIED = 1 << 14
_POOLS: dict[tuple[int, int], torch.cuda.MemPool] = {}


@contextmanager
def own_memory(ordinal: int, stream: Handle) -> Iterator[None]:
    """Have PyTorch take memory from the pool of a stream."""
    import torch

    with torch.cuda.use_mem_pool(_POOLS[ordinal, int(stream)], f"cuda:{ordinal}"):
        yield


def make_memory(ordinal: int, stream: Handle, queue: torch.cuda.ExternalStream) -> None:
    """The pool of a stream, with cuBLAS's workspace for it, unless it is there."""
    import torch

    key = ordinal, int(stream)
    if key in _POOLS:
        return
    device = f"cuda:{ordinal}"
    with torch.cuda.device(ordinal):
        _POOLS[key] = torch.cuda.MemPool()
        with torch.cuda.stream(queue), torch.no_grad(), own_memory(ordinal, stream):
            ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
            torch.mm(ones, ones)
            torch.addmm(ones[0], ones, ones)
        queue.synchronize()


@contextmanager
def told_sms(ordinal: int, sms: int | None) -> Iterator[None]:
    """Tell cuBLAS how many SMs it has; None: those of the GPU."""
    if sms is None:
        yield
        return
    import torch

    whole = torch.cuda.get_device_properties(ordinal).multi_processor_count
    handle = torch.cuda.current_blas_handle()
    before = torch._C._get_sm_carveout_experimental()
    torch._C._set_sm_carveout_experimental(whole - sms)
    _tell(handle, sms)
    try:
        yield
    finally:
        _tell(handle, 0)
        torch._C._set_sm_carveout_experimental(before)


def _tell(handle: int, sms: int) -> None:
    setter = _cublas_setter()
    if setter is not None:
        setter(ctypes.c_void_p(handle), ctypes.c_int(sms))


@cache
def _cublas_setter() -> Callable[..., int] | None:
    """`cublasSetSmCountTarget` of the library that PyTorch has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.rpartition(" ")[2]
        if "/libcublas.so" in path:
            setter: Callable[..., int] | None = getattr(
                ctypes.CDLL(path), "cublasSetSmCountTarget", None
            )
            return setter
    return None


def first_run(
    ordinal: int,
    run: Callable[[int | None], None],
    *,
    noise: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    sms: int | None,
) -> int | None:
    """Make a call before it is captured, so that its code is loaded; the SMs to tell cuBLAS.

    `noise` are operands that hold nothing yet: for the trial they are filled with random numbers.
    """
    import torch

    run(None)
    kinds = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    numbers = sum(result.numel() for result in results)
    if sms is None or numbers < _LEAST_TRIED or any(x.dtype not in kinds for x in results):
        return None
    generator = torch.Generator(f"cuda:{ordinal}").manual_seed(0)
    for operand in noise:
        if operand.dtype in kinds:
            operand.normal_(generator=generator)
    run(None)
    plain = [result.clone() for result in results]
    run(sms)
    same = all(torch.equal(a, b) for a, b in zip(plain, results, strict=True))
    return sms if same else None
