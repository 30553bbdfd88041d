"""The PTX of kernels that a capture launched, and the same kernels for other architectures.

In: the functions that a graph launches. Out: `RawCode` for those whose PTX can be reached: kernels
that Triton compiled in this process (by torch.compile or by hand), kernels of `ptx_sources`, and
kernels that a PTX text of the user's own defines. Others have none.

The text of a kernel of Triton's is left without the folders of the machine that compiled it: files
have plain names, and the records of DWARF that say the same again are left out (a line is found by
`.file` and `.loc`). So equal kernels have equal text wherever they were compiled, and a trace tells
nobody where its author keeps files. Assertions in kernels still do: what they print is data of the
module.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tessera.frontend.capture.ptx_sources import core_texts, cupy_texts, numba_texts
from tessera.frontend.capture.raw import RawCode, RawVariant
from tessera.frontend.ptx.read_ptx import parse_module

if TYPE_CHECKING:
    import triton

# What decides the code besides the architecture.
_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "enable_fp_fusion",
    "enable_reflect_ftz",
    "default_dot_input_precision",
    "debug",
    "sanitize_overflow",
    "launch_cooperative_grid",
    "launch_pdl",
)
# The file that a failed assertion names. Triton takes code of an equal kernel from its cache, which
# may have been in another file when it was compiled.
_ASSERTED_IN = re.compile(r"^\.global \.align 1 \.b8 (assertFile_\d+)\[\d+\] = \{[^}]*\};", re.M)
# How many warps were asked for: where warps have jobs of their own, more are launched.
_WARPS = re.compile(r'"ttg\.num-warps"\s*=\s*([0-9]+)')


@dataclass(frozen=True, slots=True)
class KernelSources:
    """Sources of PTX: Triton's kernels and texts by handle, other texts by kernel name."""

    triton: Mapping[int, triton.compiler.CompiledKernel]
    by_handle: Mapping[int, str]
    by_name: Mapping[str, str]

    def knows(self, function: int, name: str) -> bool:
        """Whether the PTX of a function can be reached."""
        return function in self.triton or function in self.by_handle or name in self.by_name


def find_sources(given: Iterable[tuple[str, str]] = ()) -> KernelSources:
    """The kernels that this process compiled, and the user's texts, each with a name for errors."""
    named = dict(numba_texts())
    for place, given_text in given:
        text = given_text.rstrip("\0")  # as NVRTC ends its texts
        named.update((kernel.name, text) for kernel in parse_module(text, place).kernels())
    return KernelSources(
        dict(_triton_kernels()), {**dict(core_texts()), **dict(cupy_texts())}, named
    )


def find_codes(
    functions: Mapping[int, str], archs: Iterable[str], sources: KernelSources
) -> tuple[list[RawCode], list[str]]:
    """The code of each function (handle to name) that has some, and what cannot be compiled."""
    problems: list[str] = []
    codes: list[RawCode] = []
    for function, name in functions.items():
        kernel = sources.triton.get(function)
        text = sources.by_handle.get(function) or sources.by_name.get(name)
        if kernel is not None:
            codes.append(RawCode(function=function, variants=_variants(kernel, archs, problems)))
        elif text is not None:
            variant = RawVariant(arch=_target(text), text=text, shared_bytes=-1, threads=-1)
            codes.append(RawCode(function=function, variants=(variant,)))
    return codes, problems


def _triton_kernels() -> Iterator[tuple[int, object]]:
    try:
        from triton.compiler.compiler import CompiledKernel
    except ImportError:
        return
    gc.unfreeze()  # kernels that a program has frozen are not among all objects
    for thing in gc.get_objects():
        if type(thing) is CompiledKernel:
            function = getattr(thing, "function", None)
            if isinstance(function, int) and "ptx" in thing.asm:
                yield function, thing


def _variants(kernel: object, archs: Iterable[str], problems: list[str]) -> tuple[RawVariant, ...]:
    """The code that ran, then that for other architectures, each once: for sm_90 Triton writes
    code for sm_90a, which may be what there is."""
    first = _variant(kernel)
    variants = {first.arch: first}
    for arch in archs:
        if arch not in variants:
            for other in _recompile(kernel, arch, problems):
                same = replace(other, text=_with_files_of(first.text, other.text))
                variants.setdefault(other.arch, same)
    return tuple(variants.values())


def _with_files_of(first: str, other: str) -> str:
    """The text of a variant whose assertions name the files that those of the first name."""
    named = {declared[1]: declared[0] for declared in _ASSERTED_IN.finditer(first)}
    return _ASSERTED_IN.sub(lambda declared: named.get(declared[1], declared[0]), other)


def _variant(kernel: triton.compiler.CompiledKernel) -> RawVariant:
    text = kernel.asm["ptx"]
    text = without_folders(text if isinstance(text, str) else text.decode())
    return RawVariant(
        arch=_target(text),
        text=text,
        shared_bytes=int(kernel.metadata.shared),
        threads=int(kernel.metadata.num_warps) * 32,
    )


def _recompile(
    kernel: triton.compiler.CompiledKernel, arch: str, problems: list[str]
) -> Iterator[RawVariant]:
    """The kernel for another architecture."""
    import triton
    from triton.backends.compiler import GPUTarget

    number = int("".join(c for c in arch if c.isdigit()))
    options = _options(kernel)
    name = getattr(kernel.metadata, "name", "a kernel")
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


def _options(kernel: triton.compiler.CompiledKernel) -> dict[str, object]:
    """The options of the compilation of a kernel, apart from those of its architecture."""
    metadata = kernel.metadata
    options = {name: getattr(metadata, name) for name in _OPTIONS if hasattr(metadata, name)}
    if libraries := getattr(metadata, "extern_libs", None):
        options["extern_libs"] = dict(libraries)
    if asked := _WARPS.search(str(kernel.asm.get("ttgir", ""))):
        options["num_warps"] = int(asked[1])
    return options


def _target(text: str) -> str:
    """The architecture that a module states."""
    for line in text.splitlines():
        if line.startswith(".target"):
            return line.split()[1].rstrip(",")
    return "sm_80"


_FILE = re.compile(r'^([ \t]*\.file[ \t]+\d+[ \t]+")((?:[^"\\\n]|\\.)*)"', re.M)
# Files of torch.compile's cache are named by a digest of all kernels in them, and equal kernels are
# compiled once: which of the files that have it is named depends on what was compiled before.
_DIGEST = re.compile(r"c[a-z2-7]{51}\.py")
_COMMENTED = re.compile(r"^[ \t]*\.loc\b[^\n/]*//[^\n]*", re.M)
_FOLDER_END = re.compile(r'/|\\(?!")')  # a quote may be part of a name
# `.loc` names functions by places in the strings; nothing but DWARF names places in the others.
_DWARF = re.compile(r"^[ \t]*\.section[ \t]+\.debug_(?!str\b)\w+\s*\{[^{}]*\}[ \t]*\n?", re.M)
_FOR_DEBUGGERS = re.compile(r"^[ \t]*\.target\b[^\n]*\bdebug\b", re.M)


def without_folders(text: str) -> str:
    """The text with plain names of files. Code for debuggers keeps its DWARF: it must have some."""
    text = _COMMENTED.sub(lambda line: _named(line[0]), _FILE.sub(_plain, text))
    return text if _FOR_DEBUGGERS.search(text) else _DWARF.sub("", text)


def _plain(file: re.Match[str]) -> str:
    return f'{file[1]}{_named(_FOLDER_END.split(file[2])[-1])}"'


def _named(text: str) -> str:
    return _DIGEST.sub("compiled.py", text)
