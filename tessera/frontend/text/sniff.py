"""Recognises files that are not PTX, and says how to get PTX from them.

In: the first bytes of a file, or its text. Out: an error that says what was given and how to get
PTX out of it, or None. The one idea: an answer is given only where it is certain (a signature)
or where the text cannot be PTX (it has no `.version` directive and no trace record), so that no
PTX file is ever refused here.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal

from tessera.diagnostics import Diagnostic, Source, Span, error

_ELF = b"\x7fELF"
_ELF_MACHINE_CUDA = 190

_GET_PTX = "if PTX is inside, get it out with `cuobjdump -xptx all {file}`"


@dataclass(frozen=True, slots=True)
class Signature:
    """Bytes that a kind of file starts with, and what to say about it."""

    start: bytes
    code: str
    what: str
    hint: str


SIGNATURES: tuple[Signature, ...] = (
    Signature(b"\x50\xed\x55\xba", "TSR1905", "is a CUDA fat binary, not PTX", _GET_PTX),
    Signature(b"\xb1\x43\x62\x46", "TSR1905", "is a CUDA fat binary, not PTX", _GET_PTX),
    Signature(b"MZ", "TSR1905", "is a Windows program or library, not PTX", _GET_PTX),
    Signature(b"\xcf\xfa\xed\xfe", "TSR1905", "is a macOS program or library, not PTX", _GET_PTX),
    Signature(b"!<arch>\n", "TSR1905", "is a static library, not PTX", _GET_PTX),
    Signature(
        b"BC\xc0\xde",
        "TSR1910",
        "is LLVM bitcode, not PTX",
        "compile it to PTX: `llc -march=nvptx64 -mcpu=sm_80 {file} -o kernel.ptx`",
    ),
    Signature(
        b"\xde\xc0\x17\x0b",
        "TSR1910",
        "is LLVM bitcode, not PTX",
        "compile it to PTX: `llc -march=nvptx64 -mcpu=sm_80 {file} -o kernel.ptx`",
    ),
    Signature(
        b"\x1f\x8b",
        "TSR1909",
        "is compressed with gzip",
        "decompress it first: `gzip -dc {file} | tessc analyze -`",
    ),
    Signature(
        b"\x28\xb5\x2f\xfd",
        "TSR1909",
        "is compressed with zstd",
        "decompress it first: `zstd -dc {file} | tessc analyze -`",
    ),
    Signature(
        b"\xfd7zXZ\x00",
        "TSR1909",
        "is compressed with xz",
        "decompress it first: `xz -dc {file} | tessc analyze -`",
    ),
    Signature(
        b"BZh",
        "TSR1909",
        "is compressed with bzip2",
        "decompress it first: `bzip2 -dc {file} | tessc analyze -`",
    ),
    Signature(
        b"\x04\x22\x4d\x18",
        "TSR1909",
        "is compressed with lz4",
        "decompress it first: `lz4 -dc {file} | tessc analyze -`",
    ),
    Signature(
        b"PK\x03\x04",
        "TSR1909",
        "is a zip file (`.npz` and `.pt` files are too)",
        "give the trace or the PTX file itself; `unzip -l {file}` lists what is inside",
    ),
)

WIDE_TEXT: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


@dataclass(frozen=True, slots=True)
class Language:
    """Text that begins a line only in a language that is not PTX, and what to say about it."""

    pattern: re.Pattern[str]
    code: str
    what: str
    hint: str


def _language(pattern: str, code: str, what: str, hint: str) -> Language:
    return Language(re.compile(pattern, re.MULTILINE), code, what, hint)


# Order matters: CUDA source may quote anything, so the more exact patterns come first.
LANGUAGES: tuple[Language, ...] = (
    _language(
        r"\Aversion https://git-lfs",
        "TSR1910",
        "is a Git LFS pointer, not the file itself",
        "fetch the contents with `git lfs pull`",
    ),
    _language(
        r"\A\s*<(?:!DOCTYPE|!doctype|html)\b",
        "TSR1910",
        "is a web page, not PTX",
        "download the raw file instead of the page that shows it",
    ),
    _language(
        r"^[ \t]*+(?:code for sm_\d+|Function : \S+|\.headerflags\s+@|/\*[0-9a-f]{4,5}\*/\s+\S)",
        "TSR1905",
        "is a listing of GPU machine code (SASS), not PTX",
        "list the PTX in place of the machine code: `cuobjdump -ptx` on the binary",
    ),
    _language(
        r"^(?:; ModuleID = |source_filename = |target triple = |target datalayout = |define .*@)",
        "TSR1910",
        "is LLVM IR, not PTX",
        "compile it to PTX: `llc -march=nvptx64 -mcpu=sm_80 {file} -o kernel.ptx`",
    ),
    _language(
        r"^[ \t]*+(?:#loc\d* = loc|#blocked\d* = #|#shared\d* = #|module attributes \{|tt\.func |"
        r"llvm\.func |gpu\.module )",
        "TSR1910",
        "is MLIR, not PTX",
        'take the PTX of a compiled Triton kernel: `compiled.asm["ptx"]`',
    ),
    _language(
        r"^[^\n/\"]{0,200}\b__(?:global|device|constant|shared)__\b",
        "TSR1910",
        "is CUDA C++ source, not PTX",
        "compile it to PTX: `nvcc -ptx -arch=sm_80 {file}`",
    ),
    _language(
        r"^[ \t]*+#[ \t]*+(?:include[ \t]*+[<\"]|pragma once\b)",
        "TSR1910",
        "is C or C++ source, not PTX",
        "if it is CUDA, compile it to PTX: `nvcc -ptx -arch=sm_80 {file}`",
    ),
    _language(
        r"^(?:import \w+|from [\w.]+ import |@triton\.jit|def \w+\()",
        "TSR1910",
        "is Python source, not PTX",
        'give the PTX that it makes; for a Triton kernel, `compiled.asm["ptx"]`',
    ),
)


def sniff_bytes(head: bytes, name: str) -> Diagnostic | None:
    """An error for a file that starts with `head`, if its signature shows that it is not text."""
    if head.startswith(_ELF):
        return _elf(head, name)
    for signature in SIGNATURES:
        if head.startswith(signature.start):
            return error(
                signature.code,
                f"`{name}` {signature.what}",
                hint=_hint(signature.hint, name),
            )
    encoding = _wide_encoding(head)
    if encoding is None:
        return None
    return error(
        "TSR1909",
        f"`{name}` is {encoding} text",
        notes=("PTX is ASCII, with UTF-8 in comments and strings",),
        hint=_hint(f"convert it: `iconv -f {encoding} -t UTF-8 {{file}} > converted.ptx`", name),
    )


def sniff_text(source: Source) -> Diagnostic | None:
    """An error for a text that cannot be PTX and is plainly something else."""
    if ".version" in source.text or "//!" in source.text:
        return None
    # The first lines show what a file is; scanning 100 MB would only cost time.
    head = source.text[:65536]
    for language in LANGUAGES:
        if match := language.pattern.search(head):
            start = match.start() + len(match[0]) - len(match[0].lstrip())
            return error(
                language.code,
                f"`{source.name}` {language.what}",
                Span(source, start, match.end()),
                hint=_hint(language.hint, source.name),
            )
    return None


def sniff_format(source: Source) -> Diagnostic | None:
    """An error for a text in another format of Tessera where a trace is expected."""
    for start, what, hint in _OURS:
        if source.text.startswith(start):
            return error(
                "TSR1910",
                f"`{source.name}` {what}",
                Span(source, 0, len(start)),
                hint=_hint(hint, source.name),
            )
    return None


_OURS = (
    (
        "tessera-plan",
        "is a plan, not a trace",
        "`tessc run {file}` runs it, `tessc check {file}` proves it; the trace is inside",
    ),
    (
        "tessera-graph",
        "is a kernel graph, not a trace",
        "give the trace that its second line names; `tessc plan {file}` plans from the graph",
    ),
)


def _elf(head: bytes, name: str) -> Diagnostic:
    """An ELF file: a cubin if its machine is CUDA, otherwise something for the host."""
    order: Literal["big", "little"] = "big" if head[5:6] == b"\x02" else "little"
    if int.from_bytes(head[18:20], order) == _ELF_MACHINE_CUDA:
        return error(
            "TSR1905",
            f"`{name}` is a cubin: machine code for an NVIDIA GPU, not PTX",
            notes=("machine code cannot be turned back into PTX",),
            hint="make PTX from the source with `nvcc -ptx`, or take it from the binary that the "
            "cubin came from with `cuobjdump -xptx all`",
        )
    kinds = {1: "object file", 2: "program", 3: "shared library or program"}
    kind = kinds.get(int.from_bytes(head[16:18], order), "file")
    return error("TSR1905", f"`{name}` is an ELF {kind}, not PTX", hint=_hint(_GET_PTX, name))


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 by its mark, or by every other byte being NUL as in wide ASCII."""
    for mark, encoding in WIDE_TEXT:
        if head.startswith(mark):
            return encoding
    sample = head[:512]
    if len(sample) < 4:
        return None
    even, odd = sample[0::2], sample[1::2]
    if not any(odd) and even.count(0) == 0:
        return "UTF-16LE"
    if not any(even) and odd.count(0) == 0:
        return "UTF-16BE"
    return None


def _hint(template: str, name: str) -> str:
    file = "FILE" if name.startswith("<") else shlex.quote(name)
    return template.format(file=file)
