"""The parts of a cubin that decide what runs, so that two of them can be compared.

In: the bytes of a little-endian ELF file, of 64 bits, or of 32 for PTX with 32-bit addresses. Out:
its sections by name. Everything is compared (code, constants, kernel information, symbols,
relocations, DWARF from the PTX itself) except sections that describe the *PTX text*, which printing
rewrites on purpose:

- `.nv_debug_ptx_txt*` is a copy of the PTX;
- `.nv_debug_line_sass` maps machine code to PTX lines (these two also as `.rel*` and
  `.nv.merc.*`);
- the names that ptxas gives to function-scoped variables end in their PTX line (`$__a__5`);
- `.note.nv.tkinfo` and `.note.nv.cuinfo` describe the tool run (command line, file names).
"""

from __future__ import annotations

import re
import struct

ABOUT_THE_TEXT = ("nv_debug_ptx_txt", "nv_debug_line_sass", "note.nv.tkinfo", "note.nv.cuinfo")
SCOPED = re.compile(rb"^(\$__.*)__\d+$")


def sections(cubin: bytes) -> dict[str, bytes]:
    """Contents by section name; a name that repeats gets `#2` and so on."""
    if cubin[:6] not in (b"\x7fELF\x02\x01", b"\x7fELF\x01\x01"):
        raise ValueError("not a little-endian ELF file")
    at, counts_at, row = (0x28, 0x3A, "<IIQQQQ") if _is_wide(cubin) else (0x20, 0x2E, "<IIIIII")
    table = struct.unpack_from("<Q" if _is_wide(cubin) else "<I", cubin, at)[0]
    size, count, names_at = struct.unpack_from("<HHH", cubin, counts_at)
    headers = [struct.unpack_from(row, cubin, table + i * size) for i in range(count)]
    names = _content(cubin, headers[names_at])
    found: dict[str, bytes] = {}
    for header in headers:
        name = names[header[0] : names.index(b"\0", header[0])].decode()
        repeat = sum(1 for seen in found if seen.split("#")[0] == name)
        found[f"{name}#{repeat + 1}" if repeat else name] = _content(cubin, header)
    return found


def code_sections(cubin: bytes) -> dict[str, bytes]:
    """Every section that depends on the meaning of the PTX and not on its layout."""
    return {
        name: content
        for name, content in sections(cubin).items()
        if not any(part in name for part in ABOUT_THE_TEXT)
        and name not in (".shstrtab", ".strtab", ".symtab")
    } | {"symbols": b"\n".join(symbols(cubin))}


def symbols(cubin: bytes) -> list[bytes]:
    """Name, binding, visibility and size of each symbol that is not a section, sorted."""
    found = sections(cubin)
    table, names = found.get(".symtab", b""), found.get(".strtab", b"")
    rows = []
    for entry in struct.iter_unpack("<IBBHQQ" if _is_wide(cubin) else "<IIIBBH", table):
        if _is_wide(cubin):
            name_at, info, other, _, _, size = entry
        else:
            name_at, _, size, info, other, _ = entry
        name = names[name_at : names.index(b"\0", name_at)]
        if info & 15 != 3 and not any(part.encode() in name for part in ABOUT_THE_TEXT):
            name = SCOPED.sub(rb"\1", name)
            rows.append(b"%s %d %d %d" % (name, info, other, size))
    return sorted(rows)


def differences(first: bytes, second: bytes) -> list[str]:
    """The names of the sections in which two cubins differ; none if they run the same code."""
    left, right = code_sections(first), code_sections(second)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _is_wide(cubin: bytes) -> bool:
    return cubin[4] == 2


def _content(cubin: bytes, header: tuple[int, ...]) -> bytes:
    kind, at, size = header[1], header[4], header[5]
    return b"" if kind in (0, 8) else cubin[at : at + size]
