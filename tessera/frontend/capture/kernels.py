"""The PTX of kernels that a capture launched, and the same kernels for other architectures.

In: handles of functions. Out: `RawCode` for those that Triton compiled in this process (by
torch.compile or by hand) or that the caller names. Others have no PTX that can be reached.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tessera.frontend.capture.raw import RawCode, RawVariant

# What decides the code besides the architecture.
_OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "debug",
    "sanitize_overflow", "launch_cooperative_grid", "launch_pdl",
)  # fmt: skip


def find_codes(
    functions: Iterable[int], archs: Iterable[str], given: Mapping[int, str]
) -> tuple[list[RawCode], list[str]]:
    """The code of each function that has some, and what went wrong with other architectures."""
    wanted = set(functions)
    problems: list[str] = []
    found: list[RawCode] = []
    archs = tuple(archs)
    for function, kernel in _triton_kernels():
        if function in wanted:
            wanted.discard(function)
            first = _variant(kernel)
            others = [v for arch in archs for v in _recompile(kernel, arch, first, problems)]
            found.append(RawCode(function=function, variants=(first, *others)))
    for function in sorted(wanted & set(given)):
        text = given[function]
        variant = RawVariant(arch=_target(text), text=text, shared_bytes=-1, threads=-1)
        found.append(RawCode(function=function, variants=(variant,)))
    return found, problems


def functions_with_code(given: Mapping[int, str]) -> set[int]:
    """The functions whose PTX can be reached."""
    return {function for function, _ in _triton_kernels()} | set(given)


def _triton_kernels() -> Iterator[tuple[int, Any]]:
    try:
        from triton.compiler.compiler import CompiledKernel
    except ImportError:
        return
    for thing in gc.get_objects():
        if type(thing) is CompiledKernel:
            function = getattr(thing, "function", None)
            if isinstance(function, int) and "ptx" in thing.asm:
                yield function, thing


def _variant(kernel: Any) -> RawVariant:
    text = kernel.asm["ptx"]
    text = text if isinstance(text, str) else text.decode()
    return RawVariant(
        arch=_target(text),
        text=text,
        shared_bytes=int(kernel.metadata.shared),
        threads=int(kernel.metadata.num_warps) * 32,
    )


def _recompile(
    kernel: Any, arch: str, first: RawVariant, problems: list[str]
) -> Iterator[RawVariant]:
    """The kernel for another architecture, unless that is the one it has."""
    if arch == first.arch:
        return
    import triton
    from triton.backends.compiler import GPUTarget

    number = int("".join(c for c in arch if c.isdigit()))
    metadata = kernel.metadata
    options = {name: getattr(metadata, name) for name in _OPTIONS if hasattr(metadata, name)}
    name = getattr(metadata, "name", "a kernel")
    source = getattr(kernel, "src", None)
    if source is None:
        problems.append(f"`{name}` has no source to compile for {arch}")
        return
    try:
        other = triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
    except Exception as problem:  # the compiler's errors are of many kinds
        text = str(problem).strip().splitlines() or [repr(problem)]
        problems.append(f"`{name}` does not compile for {arch}: {text[-1]}")
        return
    yield _variant(other)


def _target(text: str) -> str:
    """The architecture that a module states."""
    for line in text.splitlines():
        if line.startswith(".target"):
            return line.split()[1].rstrip(",")
    return "sm_80"
