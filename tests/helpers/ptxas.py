"""Ask NVIDIA's assembler about PTX text: is it accepted, where is it wrong, what does it become.

In: PTX text. Out: `Assembly`, the verdict with the cubin or the complaints. The architecture is
the one that the text's `.target` names. ptxas 13 makes no code for GPUs before sm_75, but assembles
their PTX for newer ones with the same checks against `.target`: an older target is raised to the
oldest that the assembler has. A module with undefined symbols needs `--compile-only`; that is tried
second, so callers need not know which files are relocatable. `TESSERA_PTXAS` names other assemblers
than the one on PATH, separated like paths; the first that accepts a text judges it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

TARGET = re.compile(r"^[ \t]*\.target\s+(?:/\*.*?\*/\s*)?(sm_\w+)", re.MULTILINE)
ONE_LINE_TARGET = re.compile(r"\.target\s+(sm_\w+)")
NUMBER = re.compile(r"sm_(\d+)$")
OLDEST = {11: 35, 12: 50}  # by the assembler's major version
OLDEST_NOW = 75
COMPLAINT = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")


@dataclass(frozen=True, slots=True)
class Assembly:
    """What ptxas said: the cubin (None if refused) and its complaints by line."""

    cubin: bytes | None
    complaints: tuple[tuple[int, str], ...]
    output: str
    options: tuple[str, ...]
    executable: str

    @property
    def accepted(self) -> bool:
        """Whether ptxas made code of it."""
        return self.cubin is not None


def find_all_ptxas() -> list[str]:
    """The paths of all assemblers to ask, in order."""
    named = os.environ.get("TESSERA_PTXAS")
    if named:
        return named.split(os.pathsep)
    found = shutil.which("ptxas")
    return [found] if found else []


def find_ptxas() -> str | None:
    """The path of the first ptxas, or None where the CUDA toolkit is absent."""
    return next(iter(find_all_ptxas()), None)


@functools.cache
def ptxas_version(executable: str) -> str:
    """The version of a ptxas, as `13.0.88`."""
    done = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"V(\d+\.\d+\.\d+)", done.stdout)
    return found[1] if found else "unknown"


def architecture(text: str) -> str:
    """The `sm_` name in the module's first `.target`, or sm_80 where there is none."""
    match = TARGET.search(text) or ONE_LINE_TARGET.search(text)
    return match.group(1) if match else "sm_80"


def raised(target: str, executable: str) -> str:
    """The architecture to assemble a target's PTX for: the target, or the oldest there is."""
    major = ptxas_version(executable).split(".")[0]
    oldest = OLDEST.get(int(major), OLDEST_NOW) if major.isdigit() else OLDEST_NOW
    found = NUMBER.match(target)
    return f"sm_{oldest}" if found and int(found[1]) < oldest else target


def assemble(
    text: str,
    options: tuple[str, ...] | None = None,
    timeout: float = 600,
    *,
    target: str | None = None,
    executable: str | None = None,
) -> Assembly:
    """Assemble `text`; with no `options`, plainly and then with `--compile-only`.

    `target` is the architecture to assemble for, where the text's own must not decide, and
    `executable` the only assembler to ask.
    """
    executables = [executable] if executable else find_all_ptxas()
    if not executables:
        raise FileNotFoundError("ptxas is not on PATH")
    first = None
    for asked in executables:
        arch = raised(target or architecture(text), asked)
        for attempt in [options] if options is not None else [(), ("--compile-only",)]:
            found = _run(asked, arch, text, attempt, timeout)
            if found.accepted:
                return found
            first = first or found
    assert first is not None
    return first


def _run(
    executable: str, arch: str, text: str, options: tuple[str, ...], timeout: float
) -> Assembly:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "input.ptx"), Path(folder, "output.cubin")
        source.write_bytes(text.encode("utf-8", "surrogateescape"))
        command = [executable, "-arch", arch, *options, "-o", str(made), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:  # as with a comment that never ends
            return Assembly(None, (), f"ptxas took more than {timeout} s", options, executable)
        output = (done.stdout + done.stderr).decode("utf-8", "replace")
        cubin = made.read_bytes() if done.returncode == 0 and made.exists() else None
    found = tuple((int(line), what.strip()) for line, what in COMPLAINT.findall(output))
    return Assembly(cubin, found, output, options, executable)
