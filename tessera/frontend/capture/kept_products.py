"""Measured products of a graph whose compiled form comes from the cache.

In: the graph that torch.compile has recorded, and everything else that determines its code
(`made_by`). Out: a name for the graph, and the products that were measured when it was compiled.
They come from the disk, because nothing is measured if the graph is not compiled again. A damaged
file counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.fx import Graph

from tessera.frontend.cache.code_digest import code_digest
from tessera.frontend.cache.private_files import cache_file, keep_checked, read_checked
from tessera.frontend.capture.graphs.graph_nodes import value_of
from tessera.frontend.capture.raw import MeasuredProduct

SUFFIX = ".products"
# Settings for the rounding of products and convolutions.
_ROUNDING = (
    "get_float32_matmul_precision",
    "backends.cudnn.allow_tf32",
    "backends.cuda.matmul.fp32_precision",
    "backends.cudnn.fp32_precision",
    "backends.cudnn.conv.fp32_precision",
    "backends.cudnn.rnn.fp32_precision",
)


def made_by(route: str, backends: str, sms: int) -> str:
    """Everything that determines the code of a graph and that torch.compile does not include
    itself."""
    sdpa = torch.backends.cuda
    flags = (sdpa.flash_sdp_enabled(), sdpa.mem_efficient_sdp_enabled(), sdpa.math_sdp_enabled())
    told = (route, backends, sms, flags, tuple(map(_setting, _ROUNDING)))
    return code_digest(("frontend/capture/**",), repr(told).encode())


def _setting(name: str) -> object:
    """The value of a PyTorch setting; older versions have fewer settings, and the older names do
    not show values that were set by the newer ones."""
    try:
        held = operator.attrgetter(name)(torch)
        return held() if callable(held) else held
    except (AttributeError, RuntimeError) as problem:
        return type(problem).__name__


def name_of_graph(graph: Graph, made: str) -> str:
    """A name for a recorded graph, the types and sizes of its inputs, and everything else that
    determines its code."""
    digest = hashlib.blake2b(made.encode() + str(graph).encode(), digest_size=16)
    for node in graph.nodes:
        value = value_of(node) if node.op == "placeholder" else None
        if value is not None:
            digest.update(repr((value.dtype, tuple(value.shape), value.stride())).encode())
    return digest.hexdigest()


def with_kept(names: Sequence[str], heard: list[MeasuredProduct]) -> tuple[MeasuredProduct, ...]:
    """The products measured now, which are stored; if there are none, the stored products."""
    path = _path(names)
    if path is None or not names:
        return tuple(heard)
    if heard:
        _write(path, heard)
        return tuple(heard)
    return _read(path)


def _path(names: Sequence[str]) -> Path | None:
    return cache_file(_where() + "\n".join(names), SUFFIX)


def _where() -> str:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return f"{torch.__version__} {gpu}\n"


def _write(path: Path, products: Sequence[MeasuredProduct]) -> None:
    rows = [[p.name, p.operands, p.library_ns, p.triton_ns] for p in products]
    keep_checked(path, json.dumps(rows).encode())


def _read(path: Path) -> tuple[MeasuredProduct, ...]:
    text = read_checked(path)
    if text is None:
        return ()
    return tuple(
        MeasuredProduct(
            name=name, operands=tuple(operands), library_ns=library_ns, triton_ns=triton_ns
        )
        for name, operands, library_ns, triton_ns in json.loads(bytes(text))
    )
