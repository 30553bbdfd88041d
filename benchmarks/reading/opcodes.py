"""Hold the opcode table against ptxas: every example, and every example with an operand too few or
too many.

    python -m benchmarks.reading.opcodes [PTXAS ...]

Give several ptxas of different CUDA releases to cover files whose targets only some of them know;
the first that accepts a file is used for it. Two kinds of finding:

    refused  the table finds no meaning for an instruction that ptxas accepts: a fault in the table
    missed   ptxas refuses what the table lets pass: harmless, listed for tightening

Exit code 1 if anything was refused, or if no ptxas accepts a file of examples.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tessera.ir.opcodes import meaning
from tessera.ir.ptx import syntax as ptx

EXAMPLES = Path(__file__).parents[2] / "tests" / "data" / "opcodes"
SURPLUS = ("%r9", "%rd9", "%p7", "0", "{%r8, %r9}", "[%rd9]")
INSTRUCTION = re.compile(r"\s+(?:@!?%\w+ )?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>[^;{]*.*);\s*$")
ERROR_LINE = re.compile(r"line (\d+); (error|fatal)")


def main(assemblers: list[str]) -> int:
    refused = missed = tried = 0
    for path in sorted(EXAMPLES.glob("*.ptx")):
        assembler = choose_assembler(path, assemblers)
        if assembler is None:
            print(f"{path.name}: no ptxas given accepts it")
            refused += 1
            continue
        for text, accepted in mutants(path, assembler):
            tried += 1
            fits = table_fits(text)
            if accepted and not fits:
                refused += 1
                print(f"{path.name}: refused: {text}")
            elif fits and not accepted:
                missed += 1
                print(f"{path.name}: missed: {text}")
    print(f"{tried} variants, {refused} refused, {missed} missed")
    return 1 if refused else 0


def choose_assembler(path: Path, assemblers: list[str]) -> str | None:
    """The first assembler that accepts a file of examples as it stands."""
    text = path.read_text()
    return next((a for a in assemblers if not faulty_lines(text, a)), None)


def mutants(path: Path, assembler: str) -> Iterator[tuple[str, bool]]:
    """Each example and its variants, with whether ptxas accepts them."""
    lines = path.read_text().splitlines()
    matches = [INSTRUCTION.match(line) for line in lines]
    skeleton = ["" if match else line for line, match in zip(lines, matches, strict=True)]
    for number, match in enumerate(matches):
        if match is None:
            continue
        variants = list(variants_of(match["opcode"], split_operands(match["operands"])))
        text = "\n".join([*skeleton[:number], *variants, *skeleton[number + 1 :]])
        bad = {index - number for index in faulty_lines(text, assembler)}
        for index, variant in enumerate(variants):
            yield variant, index not in bad


def variants_of(opcode: str, operands: list[str]) -> Iterator[str]:
    """The instruction itself, with each operand left out, and with one more."""
    shorter = [operands[:i] + operands[i + 1 :] for i in range(len(operands))]
    longer = [[*operands, extra] for extra in SURPLUS] + [["%p7", *operands], ["%r9", *operands]]
    for variant in [operands, *shorter, *longer]:
        yield f"  {opcode} {', '.join(variant)};"


def split_operands(text: str) -> list[str]:
    """Operands at the top level of brackets."""
    operands, depth, start = [], 0, 0
    for index, character in enumerate(text + ","):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            operands.append(text[start:index].strip())
            start = index + 1
    return [operand for operand in operands if operand]


def table_fits(line: str) -> bool:
    """Whether the table takes an instruction with that many operands."""
    match = INSTRUCTION.match(line)
    assert match is not None
    name, *modifiers = match["opcode"].split(".")
    found = meaning(ptx.Opcode(name, tuple(modifiers)), len(split_operands(match["operands"])))
    return found is not None and found.fits


def faulty_lines(text: str, assembler: str) -> set[int]:
    """Line indices that ptxas refuses; a syntax error hides the rest, so such lines go first."""
    lines = text.splitlines()
    faulty: set[int] = set()
    while True:
        found = {int(n) - 1 for n, _ in ERROR_LINE.findall(assemble("\n".join(lines), assembler))}
        new = found - faulty
        faulty |= found
        if not new:
            return faulty
        for index in new:
            lines[index] = ""


def assemble(text: str, assembler: str) -> str:
    """What ptxas says about a module; for the newest architecture that its target allows."""
    target = re.search(r"\.target\s+sm_(\w+)", text)
    assert target is not None
    arch = "sm_35" if target[1] in {"10", "11", "12", "13"} else f"sm_{target[1]}"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "module.ptx"
        source.write_text(text + "\n")
        command = [assembler, "-O0", f"-arch={arch}", str(source), "-o", f"{folder}/module.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    unplaced = done.returncode != 0 and not ERROR_LINE.search(output)
    return f"line 1; fatal: {output}" if unplaced else output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["ptxas"]))
