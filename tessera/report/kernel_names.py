"""Names of kernels for people: short, and still the same name.

In: the name of a step (`MODULE.KERNEL`), as a compiler made it. Out: a name of at most `MOST`
columns. A mangled name of C++ or Numba is read up to its arguments; what stands in `<...>` is
replaced by a digest of the whole name, so that two instances of a template differ. Another long
name loses its middle. JSON and plan files have the whole name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

from tessera.report.table import shortened

MOST = 56
_MANGLED = re.compile(r"(?:^|(?<=\.))_Z(?P<nested>NK?)?(?=\d|St)")
_LENGTH = re.compile(r"(?P<tag>B?)(?P<size>\d+)")
_UNNAMED = "_GLOBAL__N_"


def short_name(name: str, most: int = MOST) -> str:
    """A name that fits into a line; that of a trace before it (`TRACE: `) is kept."""
    trace, colon, name = name.rpartition(": ")
    mangled = _MANGLED.search(name)
    if mangled is not None and (readable := _readable(name, mangled)):
        name = name[: mangled.start()] + readable
    return f"{trace}{colon}{shortened(name, most)}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Short names, of which no two are equal: those that would be stay whole."""
    made = {name: short_name(name) for name in names}
    counts = Counter(made.values())
    return {name: name if counts[short] > 1 else short for name, short in made.items()}


def _readable(name: str, mangled: re.Match[str]) -> str:
    """The parts of a mangled name, without its arguments; empty if it cannot be read."""
    at, parts, is_instance = mangled.end(), [], False
    if name.startswith("St", at):
        at, parts = at + 2, ["std"]
    while size := _LENGTH.match(name, at):
        start, at = size.end(), size.end() + int(size["size"])
        if at > len(name):
            return ""
        if size["tag"]:  # of an ABI: Numba writes versions and types there
            is_instance = True
        elif parts and parts != ["std"] and not mangled["nested"]:
            break  # a class among the arguments
        elif not name.startswith(_UNNAMED, start):
            parts.append(name[start:at])
    is_instance |= name.startswith("I", at)
    digest = f"<{sha256(name[mangled.start() :].encode()).hexdigest()[:4]}>" if is_instance else ""
    return "::".join(part for part in parts if part != "cudapy") + digest
