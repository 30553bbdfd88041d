"""A stand-in for the driver's bindings, for `exchange_ways --dry-run`: calls do nothing.

In: calls as `cuda.bindings.driver` takes them. Where that package is installed, a call must exist
there and have as many arguments as its documentation says, and structures are the real ones. Out:
results of the right shape; memory of the host is real, and downloads are zeros.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from types import SimpleNamespace
from typing import Any

from tessera.backend.cuda.api import bindings

_SMS = 132


def _resource(sms: int) -> SimpleNamespace:
    return SimpleNamespace(sm=SimpleNamespace(smCount=sms))


class StandIn:
    """Every call of the driver, by name."""

    def __init__(self) -> None:
        try:
            self._real: Any = bindings()
        except ImportError:
            self._real = None
        self._handles = itertools.count(1 << 20, 1 << 20)
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not re.match(r"cu[A-Z]", name):  # a structure or an enumeration
            return getattr(self._real, name) if self._real else _Loose()
        if self._real is None:
            return lambda *args: self._answer(name, args)
        first = getattr(self._real, name).__doc__.splitlines()[0]
        inside = re.sub(r"\[[^\]]*\]", "", first[first.index("(") + 1 : first.rindex(")")])
        wanted = len(inside.split(",")) if inside.strip() else 0

        def call(*args: Any) -> Any:
            if len(args) != wanted:
                raise TypeError(f"{name} takes {wanted} arguments, and got {len(args)}: {first}")
            return self._answer(name, args)

        call.__name__ = name
        return call

    def _answer(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        match name:
            case "cuDeviceGetDevResource" | "cuGreenCtxGetDevResource":
                return 0, _resource(_SMS if name == "cuDeviceGetDevResource" else _SMS - 48)
            case "cuDevSmResourceSplitByCount":
                whole, sms = args[1].sm.smCount, args[3]
                return 0, [_resource(sms)], 1, _resource(whole - sms)
            case "cuCtxGetStreamPriorityRange":
                return 0, 0, -5
            case "cuMemHostAlloc":
                self._kept.append((ctypes.c_uint8 * args[0])())
                return 0, ctypes.addressof(self._kept[-1])
            case "cuMemcpyDtoH":
                ctypes.memset(args[0], 0, args[2])
                return (0,)
            case _:
                return 0, self._handle(name)

    def _handle(self, name: str) -> Any:
        kinds = {
            "cuGraphCreate": "CUgraph",
            "cuLibraryGetKernel": "CUkernel",
            "cuCtxFromGreenCtx": "CUcontext",
        }
        kind = "CUgraphNode" if name.startswith("cuGraphAdd") else kinds.get(name)
        number = next(self._handles)
        return getattr(self._real, kind)(number) if kind and self._real else number


class _Loose:
    """Any structure or enumeration."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Loose()

    def __call__(self, *args: Any) -> Any:
        return _Loose()
