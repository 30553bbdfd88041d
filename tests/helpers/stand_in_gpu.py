"""A stand-in GPU for captures of PyTorch on the host.

Tensors say that they are on a GPU, and every operator that does work adds a kernel without PTX to
the only graph. Operators run when they are captured; what lives on is put back then, and a replay
gives it what the call has made of it. Needs torch.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tessera.driver.trace import capture_trace as tracing
from tessera.frontend.capture.tensors import tensors_in

# Operators without work whose schemas do not say that they give views.
_IDLE = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "set_",
        "_unsafe_view",
        "detach",
        "_local_scalar_dense",
        "is_pinned",
    }
)


class Graph(int):
    """A handle of the only graph."""


class Driver(types.ModuleType):
    """As much of the driver as a capture asks; `nodes` counts those of the graph, `kept` are
    tensors that live on."""

    CUgraph = Graph
    CUstream = staticmethod(int)
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2)
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_DEVICE=2)
    CUkernelNodeAttrID = SimpleNamespace(
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=0, CU_LAUNCH_ATTRIBUTE_COOPERATIVE=1
    )

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.nodes = 0
        self.kept: list[Any] = []
        self.made: list[tuple[Any, Any]] = []

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        return 0, Graph(1)

    def cuPointerGetAttribute(self, kind: int, word: int) -> tuple[Any, ...]:
        return (0, 2) if self._allocation(word) else (1, None)

    def cuMemGetAddressRange(self, word: int) -> tuple[Any, ...]:
        return 0, *self._allocation(word)

    def cuMemcpyDtoH(self, target: int, address: int, size: int) -> tuple[Any, ...]:
        ctypes.memmove(target, address, size)
        return (0,)

    def _allocation(self, word: int) -> tuple[int, ...]:
        """Where the memory of a tensor that lives on begins, and its bytes."""
        for storage in (tensor.untyped_storage() for tensor in self.kept):
            if storage.data_ptr() <= word < storage.data_ptr() + storage.nbytes():
                return storage.data_ptr(), storage.nbytes()
        return ()

    def cuGraphGetNodes(self, graph: int, count: int) -> tuple[Any, ...]:
        return 0, list(range(count)), self.nodes

    def cuGraphGetEdges(self, graph: int, count: int) -> tuple[Any, ...]:
        chain = list(range(max(self.nodes - 1, 0)))
        return 0, chain[:count], [n + 1 for n in chain[:count]], [], len(chain)

    def cuGraphNodeGetType(self, node: int) -> tuple[Any, ...]:
        return 0, SimpleNamespace(name="CU_GRAPH_NODE_TYPE_KERNEL")

    def cuGraphKernelNodeGetParams(self, node: int) -> tuple[Any, ...]:
        return 0, SimpleNamespace(
            func=9,
            kern=0,
            gridDimX=1,
            gridDimY=1,
            gridDimZ=1,
            blockDimX=1,
            blockDimY=1,
            blockDimZ=1,
            sharedMemBytes=0,
            kernelParams=0,
        )

    def cuFuncGetName(self, function: int) -> tuple[Any, ...]:
        return 0, b"library_kernel"

    def cuGraphKernelNodeGetAttribute(self, node: int, kind: int) -> tuple[Any, ...]:
        return 1, None

    @contextmanager
    def capturing(self, graph: Any, pool: Any) -> Iterator[None]:
        """What `torch.cuda.graph` does: nothing has changed after it."""
        self.nodes = 0
        before = [flat.clone() for flat in map(_bytes, self.kept)]
        with _Counter(self):
            yield
        self.made = [(flat, flat.clone()) for flat in map(_bytes, self.kept)]
        for (flat, _), old in zip(self.made, before, strict=True):
            flat.copy_(old)

    def replay(self) -> None:
        for flat, new in self.made:
            flat.copy_(new)


class _Counter(TorchDispatchMode):
    """Counts a node for every operator that does work."""

    supports_higher_order_operators = True

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self.driver = driver

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.HigherOrderOperator):
            return result
        schema = func._schema
        if schema.name == "aten::lift_fresh":
            # What the host holds is copied to a GPU then, which no capture may do.
            raise RuntimeError("operation not permitted when stream is capturing")
        aliases = [one.alias_info for one in schema.arguments if one.alias_info is not None]
        may_view = any(not alias.is_write for alias in aliases)
        given = {one.untyped_storage().data_ptr() for one in tensors_in((args, kwargs))}
        # `contiguous` and its like give a view if they can.
        is_view = may_view and all(
            one.untyped_storage().data_ptr() in given for one in tensors_in(result)
        )
        if not is_view and schema.name.split("::")[1] not in _IDLE:
            self.driver.nodes += 1
        return result


class Generator:
    """PyTorch's generator of random numbers; `step` is drawn whenever somebody looks."""

    drawn = 0
    step = 0
    state = ""

    def get_offset(self) -> int:
        self.drawn += self.step
        return self.drawn

    def initial_seed(self) -> int:
        return 3

    def clone_state(self) -> str:
        return "as before"

    def graphsafe_set_state(self, state: str) -> None:
        self.state = state


def install(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Put the stand-in in the place of the driver and of `torch.cuda`."""
    made = Driver()

    @contextmanager
    def nothing(*_: Any) -> Iterator[None]:
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None, cuda_stream=1)
    graph = SimpleNamespace(raw_cuda_graph=lambda: 1, instantiate=lambda: None, replay=made.replay)
    stand_ins = {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": nothing,
        "synchronize": lambda: None,
        "graph": made.capturing,
        "graph_pool_handle": lambda: (0, 1),
        "set_stream": lambda stream: None,
        "device": nothing,
        "CUDAGraph": lambda keep_graph: graph,
        "current_device": lambda: 0,
        "default_generators": [Generator()],
        "memory_snapshot": list,
    }
    for name, value in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True), raising=False)
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = made  # type: ignore[attr-defined]
    for name, module in (("cuda", types.ModuleType("cuda")), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    monkeypatch.setattr(tracing, "require_gpu", lambda: None)
    return made


def _bytes(tensor: Any) -> Any:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
