"""Which versions of PyTorch and Triton can compile for a GPU that is not there.

In: the versions that are installed. Out: a warning if nobody tried them (`TSR6014`), an error if
they lack a private name that is needed (`TSR6014`). `TESTED` are those that were tried. Names that
are put in place of others are looked for where that is done (`private_names`), those that are only
called are listed here.
"""

from __future__ import annotations

import importlib
import re

import torch

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.frontend.capture.products import Inner
from tessera.frontend.capture.stand_in import does_not_fit

# The oldest and the newest versions of PyTorch and Triton that the tests and benchmarks ran with.
TESTED = {"torch": ("2.11", "2.13"), "triton": ("3.6", "3.9")}
# Names that are no part of the interface of PyTorch and Triton, and that are called elsewhere.
_CALLED = (
    "torch._C:DispatchKey.CompositeExplicitAutograd",
    "torch._C:DispatchKey.CompositeImplicitAutograd",
    "torch._C:_dispatch_has_kernel_for_dispatch_key",
    "torch._dynamo:reset",
    "torch._inductor:compile",
    "torch._inductor.config:pre_grad_custom_pass",
    "torch._inductor.config:post_grad_custom_pre_pass",
    "torch._inductor.custom_graph_pass:CustomGraphPass",
    "torch._subclasses.fake_tensor:FakeTensor",
    "torch._subclasses.fake_tensor:unset_fake_temporarily",
    "torch.compiler.config:cache_key_tag",
    "torch.utils._python_dispatch:TorchDispatchMode",
    "triton.compiler.compiler:CompiledKernel",
)


def check_names() -> None:
    """Raise if a name that is called elsewhere is not there."""
    for place in _CALLED:
        find(place)


def untested() -> tuple[Diagnostic, ...]:
    """Notes about the installed versions."""
    import triton

    versions = {"torch": str(torch.__version__), "triton": str(triton.__version__)}
    odd = [
        f"{package} {versions[package]}"
        for package, known in TESTED.items()
        if not _number(known[0]) <= _number(versions[package]) <= _number(known[1])
    ]
    if not odd:
        return ()
    return (
        warning(
            "TSR6014",
            f"capturing without a GPU was not tried with {' and '.join(odd)}",
            hint=f"{_tested()} were tried",
        ),
    )


def _number(version: str) -> tuple[int, ...]:
    """The first two parts of a version."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:2])


def _tested() -> str:
    return ", ".join(f"{package} {' to '.join(known)}" for package, known in TESTED.items())


def find(place: str) -> Inner:
    """An object by its path: `torch.cuda`, or `torch._C:_dynamo.guards` for one inside a module."""
    module, _, inside = place.partition(":")
    try:
        holder = importlib.import_module(module)
        for name in inside.split(".") if inside else ():
            holder = getattr(holder, name)
    except (ImportError, AttributeError):
        raise missing(place.replace(":", ".")) from None
    return holder


def missing(name: str) -> TesseraError:
    """An error for a version that lacks a name."""
    return does_not_fit(f"it has no `{name}`, which is needed to compile without a GPU", _tested())
