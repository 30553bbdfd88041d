"""Kernels at the sizes of real models, compiled for an H200 without one.

    python -m benchmarks.prediction.h200_cases FILE.json.xz    # needs Triton, no GPU

A case is one launch: code, grid, arguments, and the bytes of each buffer with how to fill it. The
file holds every text of PTX once. `benchmarks.prediction.h200_rows` measures the cases;
`trace_text` is a case as a trace, so that its work can be counted anywhere.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.prediction.h200_shapes import FAMILIES, Case, Tensor

CASES = Path(__file__).parents[1] / "results" / "h200_cases.json.xz"
PTX_VERSION = 87  # what the H200's driver reads
_PARAMETERS = re.compile(r"\.entry \w+\((.*?)\)", re.DOTALL)


# --- compile ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Code:
    """A compiled kernel; `extra` parameters follow the arguments, and are zero."""

    text: str
    entry: str
    threads: int
    shared: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


class Compiler:
    """Triton for an H200, each kernel once."""

    def __init__(self) -> None:
        self._known: dict[object, Code] = {}

    def code(
        self,
        function: Any,
        kinds: Sequence[str],
        constants: Mapping[str, Any],
        *,
        warps: int,
        stages: int,
        plain: Sequence[str] = (),
    ) -> Code:
        """`kinds` are the types of the arguments; those of `plain` may be any number."""
        key = (function.__name__, *kinds, *sorted(constants.items()), warps, stages, *plain)
        if key not in self._known:
            self._known[key] = _compiled(function, kinds, constants, warps, stages, plain)
        return self._known[key]


def _compiled(
    function: Any,
    kinds: Sequence[str],
    constants: Mapping[str, Any],
    warps: int,
    stages: int,
    plain: Sequence[str],
) -> Code:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [name for name in function.arg_names if name not in constants]
    signature = dict(zip(names, kinds, strict=True)) | dict.fromkeys(constants, "constexpr")
    places = {name: (index,) for index, name in enumerate(function.arg_names)}
    attributes = {places[n]: [["tt.divisibility", 16]] for n in names if n not in plain}
    source = ASTSource(
        fn=function,
        signature={name: signature[name] for name in function.arg_names},
        constexprs={places[name]: value for name, value in constants.items()},
        attrs=attributes,
    )
    made = triton.compile(
        source,
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": warps, "num_stages": stages, "ptx_version": PTX_VERSION},
    )
    return Code(made.asm["ptx"], made.metadata.name, 32 * warps, made.metadata.shared)


def compile_case(compiler: Compiler, case: Case) -> tuple[Case, Code]:
    from benchmarks.kernels import h200_triton as kernels

    names = [f"*{one.kind}" if isinstance(one, Tensor) else "i32" for one in case.arguments]
    build = case.build
    scalars = [one for one in case.arguments if isinstance(one, int)]
    function = getattr(kernels, case.kernel)
    runtime = [name for name in function.arg_names if name not in build["constants"]]
    odd = [n for n, one in zip(runtime, case.arguments, strict=True) if one in scalars and one % 16]
    code = compiler.code(
        function,
        names,
        build["constants"],
        warps=build["warps"],
        stages=build["stages"],
        plain=tuple(dict.fromkeys([*build.get("plain", ()), *odd])),
    )
    return replace(case, code=code.digest, threads=code.threads, shared=code.shared), code


def parameters_of(text: str) -> list[str]:
    """The lines of a kernel's parameters."""
    found = _PARAMETERS.search(text)
    assert found is not None
    return [line for line in found[1].split(",") if ".param" in line]


def build(target: Path) -> None:
    compiler, codes, rows, failed = Compiler(), {}, [], 0
    for family, cases in FAMILIES.items():
        for case in cases():
            try:
                done, code = compile_case(compiler, case)
            except Exception as problem:
                failed += 1
                print(family, case.name, repr(problem)[:200], flush=True)
                continue
            codes[code.digest] = code.text
            rows.append({**asdict(done), "build": dict(done.build, plain=[])})
        print(family, len(rows), "cases,", len(codes), "kernels", flush=True)
    document = {"schema": "tessera-h200-cases/1", "codes": codes, "cases": rows}
    target.write_bytes(lzma.compress(json.dumps(document).encode(), preset=6))
    print(len(rows), "cases,", failed, "failed,", target.stat().st_size, "bytes")


# --- read ------------------------------------------------------------------------------------


def read_cases(path: Path = CASES) -> tuple[list[Case], dict[str, str]]:
    """All cases, and PTX by digest."""
    data = json.loads(lzma.decompress(path.read_bytes()))
    cases = []
    for row in data["cases"]:
        given = [Tensor(**one) if isinstance(one, dict) else one for one in row["arguments"]]
        cases.append(Case(**{**row, "grid": tuple(row["grid"]), "arguments": tuple(given)}))
    return cases, data["codes"]


def trace_text(case: Case, ptx: str) -> str:
    """A case as a trace with one launch."""
    buffers = {one.name: one for one in case.tensors}
    lines = ["//! tessera.trace 1"]
    lines += [f"//! buffer {b.name} bytes={b.bytes} role={b.role}" for b in buffers.values()]
    arguments = [a.name if isinstance(a, Tensor) else f"u32:{a}" for a in case.arguments]
    arguments += ["u64:0"] * (len(parameters_of(ptx)) - len(arguments))
    grid = ",".join(map(str, (*case.grid, 1, 1)[:3]))
    launch = (
        f"//! launch m0.{case.kernel} grid={grid} block={case.threads},1,1 "
        f"smem={case.shared} args=[{', '.join(arguments)}]"
    )
    return "\n".join([*lines, "//! module m0", ptx, launch, ""])


def distinct_bytes(case: Case) -> int:
    """Bytes of all buffers, gathers by what they take."""
    total = 0
    for one in {t.name: t for t in case.tensors}.values():
        rows = case.shape.get("rows", 1) * case.shape.get("width", 1) * 2
        total += min(one.bytes, rows) if one.name == "table" else one.bytes
    return total


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else CASES)
