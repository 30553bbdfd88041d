"""PTX of a compiler without the folders of the machine that it ran on.

In: the text of a module as Triton writes it. Out: the same code, whose files have names and no
folders, and without the records of DWARF that say the same again: a line is found by `.file` and
`.loc`. So equal kernels have equal text wherever they were compiled, and a trace tells nobody where
its author keeps files; assertions in kernels still do, for what they print is data of the module.
"""

from __future__ import annotations

import re

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
