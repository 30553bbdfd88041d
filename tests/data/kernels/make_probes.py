"""Write the probe modules: kernels that apply single instructions to arrays of inputs.

Makes ptx/probe_*.ptx and probes.json, which lists, for each kernel, its inputs and where in the
output each instruction's results are. Needs ptxas 13.0 on PATH, to drop the candidates of
`probe_instructions` that are not PTX.

    python tests/data/kernels/make_probes.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from probe_instructions import FAMILIES, Group  # noqa: E402
from probe_machine import Kernel, machine_kernels  # noqa: E402

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
WIDTH = {
    "u8": 1,
    "s8": 1,
    "u16": 2,
    "s16": 2,
    "b16": 2,
    "f16": 2,
    "bf16": 2,
    "fp8x2": 2,
    "u64": 8,
    "s64": 8,
    "b64": 8,
    "f64": 8,
}
COUNTS = {1: 320, 2: 576, 3: 576}


def width(kind: str) -> int:
    """Bytes of an element in memory."""
    return WIDTH.get(kind, 4)


def register(kind: str) -> str:
    """The register type that holds a kind."""
    if kind in ("f32", "f64"):
        return f".{kind}"
    return f".b{max(16, 8 * width(kind))}"


def access(kind: str) -> str:
    """The type of the load or store of a kind."""
    return f".{kind}" if kind in ("u8", "s8", "f32", "f64") else f".b{8 * width(kind)}"


def element_count(group: Group) -> int:
    """Elements per input."""
    return group.count or COUNTS[len(group.inputs)]


def kernel_text(group: Group) -> tuple[str, list[dict[str, object]]]:
    """PTX of a group's kernel, and its results: text, kind, byte offset in the output."""
    count, offset, results = element_count(group), 0, []
    lines = [
        f".visible .entry {group.name}(.param .u64 in0, .param .u64 in1, .param .u64 in2,",
        "\t.param .u64 out, .param .u32 n)",
        "{",
        "\t.reg .pred %done; .reg .b32 %i, %t, %s; .reg .b64 %base, %at, %out;",
    ]
    lines += [f"\t.reg {register(kind)} %in{i};" for i, kind in enumerate(group.inputs)]
    lines += [
        "\tmov.u32 %i, %ctaid.x; mov.u32 %s, %ntid.x; mov.u32 %t, %tid.x;",
        "\tmad.lo.u32 %i, %i, %s, %t;",
        "\tld.param.u32 %s, [n];",
        "\tsetp.ge.u32 %done, %i, %s;",
        "\t@%done ret;",
        "\tld.param.u64 %out, [out];",
    ]
    for i, kind in enumerate(group.inputs):
        lines.append(f"\tld.param.u64 %base, [in{i}];")
        lines.append(f"\tmad.wide.u32 %at, %i, {width(kind)}, %base;")
        lines.append(f"\tld.global{access(kind)} %in{i}, [%at];")
    last = None
    for kind, text in group.texts:
        size = width(kind)
        offset = -(-offset // size) * size
        if size != last:
            lines.append(f"\tmad.wide.u32 %at, %i, {size}, %out;")
            last = size
        names = {"d": "%d", "a": "%in0", "b": "%in1", "c": "%in2"}
        body = text.format(**names)
        store = f"st.global{access(kind)} [%at+{offset}], %d;"
        lines.append(f"\t{{ .reg {register(kind)} %d; {body} {store} }}")
        results.append({"text": text, "kind": kind, "offset": offset})
        offset += size * count
    lines.append("\tret;\n}\n")
    return "\n".join(lines), results


def refused(text: str) -> list[int]:
    """Line numbers that ptxas refuses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.ptx"
        path.write_text(text)
        command = ["ptxas", "-arch=sm_90a", str(path), "-o", str(path.with_suffix(".o"))]
        run = subprocess.run(command, capture_output=True, text=True)
    return sorted({int(line) for line in re.findall(r"line (\d+); (?:error|fatal)", run.stderr)})


def legal(group: Group) -> Group:
    """The group with only the texts that ptxas takes."""
    while True:
        text, _ = kernel_text(group)
        lines = (HEADER + text).splitlines()
        bad = refused(HEADER + text)
        if not bad:
            return group
        first = next(i for i, line in enumerate(lines) if line.startswith("\t{ .reg")) + 1
        at: dict[int, int] = {}
        number = 0
        for i in range(first, len(lines) + 1):
            if lines[i - 1].startswith("\t{ .reg"):
                at[i] = number
                number += 1
        drop = {at[line] for line in bad if line in at}
        if not drop:
            raise SystemExit(f"{group.name}: ptxas refuses a line that is no candidate: {bad}")
        kept = tuple(pair for i, pair in enumerate(group.texts) if i not in drop)
        group = replace(group, texts=kept)


def families() -> dict[str, list[Kernel]]:
    """Kernels by module."""
    modules: dict[str, list[Kernel]] = {}
    for name, make in FAMILIES.items():
        modules[name] = []
        for group in map(legal, make()):
            text, results = kernel_text(group)
            inputs = [{"kind": kind, "count": element_count(group)} for kind in group.inputs]
            launch = {"threads": 128, "n": element_count(group)}
            modules[name].append(Kernel(group.name, text, inputs, results, launch))
    for name, kernels in machine_kernels().items():
        modules[name] = [kernel for kernel in kernels if not refused(HEADER + kernel.text)]
    return modules


def main() -> None:
    """Write all modules and the index."""
    rows = []
    for name, kernels in families().items():
        text = HEADER + "".join(f"\n{kernel.text}" for kernel in kernels)
        (HERE / "ptx" / f"{name}.ptx").write_text(text)
        rows += [f" {json.dumps(k.name)}: {json.dumps(k.entry(name))}" for k in kernels]
    (HERE / "probes.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
