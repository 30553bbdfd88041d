"""Ask NVIDIA's assembler about PTX text: is it accepted, where is it wrong, what does it become.

In: PTX text. Out: `Assembly`, the verdict with the cubin or the complaints. The architecture is
the one that the text's `.target` names. A module with undefined symbols needs `--compile-only`;
that is tried second, so callers need not know which files are relocatable.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

TARGET = re.compile(r"^[ \t]*\.target\s+(?:/\*.*?\*/\s*)?(sm_\w+)", re.MULTILINE)
ONE_LINE_TARGET = re.compile(r"\.target\s+(sm_\w+)")
COMPLAINT = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")


@dataclass(frozen=True, slots=True)
class Assembly:
    """What ptxas said: the cubin (None if refused) and its complaints by line."""

    cubin: bytes | None
    complaints: tuple[tuple[int, str], ...]
    output: str
    options: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether ptxas made code of it."""
        return self.cubin is not None


def find_ptxas() -> str | None:
    """The path of ptxas, or None where the CUDA toolkit is absent."""
    return shutil.which("ptxas")


def architecture(text: str) -> str:
    """The `sm_` name in the module's first `.target`, or sm_80 where there is none."""
    match = TARGET.search(text) or ONE_LINE_TARGET.search(text)
    return match.group(1) if match else "sm_80"


def assemble(text: str, options: tuple[str, ...] | None = None, timeout: float = 600) -> Assembly:
    """Assemble `text`; with no `options`, plainly and then with `--compile-only`."""
    attempts = [options] if options is not None else [(), ("--compile-only",)]
    results = [_run(text, attempt, timeout) for attempt in attempts[:1]]
    if not results[0].accepted and len(attempts) > 1:
        results.append(_run(text, attempts[1], timeout))
    return next((result for result in results if result.accepted), results[0])


def _run(text: str, options: tuple[str, ...], timeout: float) -> Assembly:
    executable = find_ptxas()
    if executable is None:
        raise FileNotFoundError("ptxas is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "input.ptx"), Path(folder, "output.cubin")
        source.write_bytes(text.encode("utf-8", "surrogateescape"))
        command = [executable, "-arch", architecture(text), *options, "-o", str(target)]
        done = subprocess.run(
            [*command, str(source)], capture_output=True, timeout=timeout, check=False
        )
        output = (done.stdout + done.stderr).decode("utf-8", "replace")
        cubin = target.read_bytes() if done.returncode == 0 and target.exists() else None
    found = tuple((int(line), what.strip()) for line, what in COMPLAINT.findall(output))
    return Assembly(cubin, found, output, options)
