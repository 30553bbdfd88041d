"""Scalar instructions whose operands ptxas knows: does a GPU still do what the ISA says?

    python -m tests.gpu.check_constants prepare FOLDER --ptxas PTXAS...    # no GPU
    python -m tests.gpu.check_constants run FOLDER OUT.json

What ptxas knows of an operand (a constant, a range), it folds and rewrites by rules of its own, and
a rule that is not the ISA's makes another address than the analysis says. The first part writes
kernels of single instructions with one operand or more replaced by what is known, with the results
of the CPU backend, and compiles them with each PTXAS for `sm_90a`. The second runs them, and counts
by instruction where a GPU gave other bits; the driver's compiler is one more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import pickle
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.helpers.numerics_cases import all_cases
from tests.helpers.ptx_cases import inputs, width_of

LANES, BLOCK = 256, 128
PER_KERNEL, PER_MODULE = 40, 25
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
SMALL = ("u8", "s8", *INTEGERS)
NAMES = "abce"
FLOATS = {
    "f16": "0 8000 3c00 bc00 7c00 fc00 7e00 7fff 1 7bff",
    "f32": "0 80000000 3f800000 bf800000 7f800000 ff800000 7fc00000 7fffffff 1 4f000000 cf000000"
    " 4f800000 5f000000 7f7fffff",
    "f64": "0 8000000000000000 3ff0000000000000 bff0000000000000 7ff0000000000000"
    " fff0000000000000 7ff8000000000000 7fffffffffffffff 1 41e0000000000000 c1e0000000000000"
    " 43e0000000000000 43f0000000000000",
}
RANGES = (
    ("and", "and.b{w} %{n}, %{n}, {m};"),
    ("or", "or.b{w} %{n}, %{n}, 32;"),
    ("few", "shr.u{w} %{n}, %{n}, {s};"),
    ("many", "shr.s{w} %{n}, %{n}, 3;"),
    ("most", "min.u{w} %{n}, %{n}, 40;"),
    ("least", "max.s{w} %{n}, %{n}, -1;"),
)


class Form(NamedTuple):
    """An instruction that reads `%a`, `%b`, `%c`, `%e` and writes `%d`."""

    name: str
    body: str
    kinds: tuple[str, ...]
    width: int


def bits(kind: str) -> int:
    return max(int(kind[1:]), 16)


def plain(op: str, kinds: Sequence[str], width: int = 0, tail: str = "") -> Form:
    names = ", ".join(f"%{name}" for name in NAMES[: len(kinds)])
    return Form(op, f"{op} %d, {names}{tail};", tuple(kinds), width or bits(kinds[0]))


def forms() -> Iterator[Form]:
    """Instructions on integers, comparisons and conversions, and the cases of `numerics`."""
    for t in INTEGERS:
        for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield plain(f"{op}.{t}", (t, t))
        for op in ("mad.lo", "mad.hi", "sad"):
            yield plain(f"{op}.{t}", (t, t, t))
        for op in ("abs", "neg") if t[0] == "s" else ():
            yield plain(f"{op}.{t}", (t,))
        for op in ("shl", "shr"):
            kind = t.replace("s", "b").replace("u", "b") if op == "shl" else t
            yield plain(f"{op}.{kind}", (t, "u32"))
        for op in ("and", "or", "xor"):
            yield plain(f"{op}.b{t[1:]}", (t, t))
        for op in ("not", "cnot"):
            yield plain(f"{op}.b{t[1:]}", (t,))
        yield plain(f"slct.{t}.s32", (t, t, "s32"))
        for test in ("eq", "ne", "lt", "le", "gt", "ge"):
            body = f".reg .pred %q; setp.{test}.{t} %q, %a, %b; selp.b32 %d, %a0, 7, %q;"
            yield Form(f"setp.{test}.{t}", body.replace("%a0", "5"), (t, t), 32)
            yield plain(f"set.{test}.u32.{t}", (t, t), 32)
            body = (
                f".reg .pred %q, %r, %s; setp.ne.u32 %s, %c, 3; setp.{test}.xor.{t} %q|%r,"
                " %a, %b, %s; selp.b32 %d, 1, 0, %q; @%r add.u32 %d, %d, 2;"
            )
            yield Form(f"setp.{test}.xor.{t}", body, (t, t, "u32"), 32)
        if t[1:] != "64":
            yield plain(f"mul.wide.{t}", (t, t), 2 * bits(t))
            yield plain(f"mad.wide.{t}", (t, t, f"{t[0]}{2 * bits(t)}"), 2 * bits(t))
        if t[1:] != "16":
            w = t[1:]
            pairs = (("add.cc", "addc", ""), ("sub.cc", "subc", ""))
            for first, second, _ in pairs:
                body = f".reg .b{w} %t; {first}.{t} %t, %a, %b; {second}.{t} %d, %c, %t;"
                yield Form(f"{first} {second}.{t}", body, (t, t, t), int(w))
            body = f".reg .b{w} %t; mad.lo.cc.{t} %t, %a, %b, %c; madc.hi.{t} %d, %a, %b, %t;"
            yield Form(f"mad.lo.cc madc.hi.{t}", body, (t, t, t), int(w))
            yield plain(f"bfe.{t}", (t, "u32", "u32"), int(w))
            body = f"bfi.b{w} %d, %a, %b, %c, %e;"
            yield Form(f"bfi.{t}", body, (t, t, "u32", "u32"), int(w))
            for op in ("popc", "clz"):
                yield plain(f"{op}.b{w}", (t,), 32)
            yield plain(f"brev.b{w}", (t,))
    for way, mode in itertools.product("lr", ("clamp", "wrap")):
        yield plain(f"shf.{way}.{mode}.b32", ("u32",) * 3)
    for table in (0x1, 0x17, 0x80, 0x96, 0xCA, 0xE8, 0xFE, 0x3C):
        yield plain(f"lop3.b32 {table}", ("u32",) * 3)._replace(
            body=f"lop3.b32 %d, %a, %b, %c, {table};"
        )
    for to, of in itertools.product(SMALL, SMALL):
        for sat in ("", ".sat"):
            yield plain(f"cvt{sat}.{to}.{of}", (of,), bits(to))
            if bits(of) < 64:  # of a register with more bits
                body = f".reg .b64 %w; cvt.u64.u{bits(of)} %w, %a; or.b64 %w, %w, -65536;"
                yield Form(
                    f"cvt{sat}.{to}.{of} wide",
                    f"{body} cvt{sat}.{to}.{of} %d, %w;",
                    (of,),
                    bits(to),
                )
    for of, to in itertools.product(FLOATS, SMALL):
        for mode, sat in itertools.product(("rni", "rzi", "rmi", "rpi"), ("", ".sat")):
            yield plain(f"cvt.{mode}{sat}.{to}.{of}", (of,), bits(to))
    seen = re.compile(r"(cvt|add|sub|mul|div|rem|min|max|sad|shr|bfe|abs)\.")
    for case in all_cases():
        is_seen = seen.match(case.name) is not None and case.operands[0][0] in "us"
        if case.bound is None and not is_seen and len(case.operands) <= 3:
            yield Form(case.name, case.body, case.operands, case.width)


def corners(kind: str) -> list[int]:
    """Constants for an operand."""
    if kind in FLOATS:
        return [int(digits, 16) for digits in FLOATS[kind].split()]
    w = width_of(kind)
    if kind not in INTEGERS and kind not in SMALL:
        return sorted({int(value) for value in inputs(kind, 3, 24)})
    near = {0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 255, 256}
    high = {(1 << w) - 1, (1 << w) - 2, (1 << w) - 32, 1 << (w - 1), (1 << (w - 1)) - 1}
    middle = {(1 << 15), (1 << 16) - 1} | ({1 << 16, 1 << 31, (1 << 32) - 1} if w > 16 else set())
    return sorted({value & ((1 << w) - 1) for value in near | high | middle})


def variants(form: Form, rng: random.Random) -> Iterator[str]:
    """What is known of the operands: assignments in front of the instruction."""
    names = NAMES[: len(form.kinds)]
    constants = dict(zip(names, map(corners, form.kinds), strict=True))
    widths = dict(zip(names, map(width_of, form.kinds), strict=True))

    def constant(name: str, value: int) -> str:
        return f"mov.b{widths[name]} %{name}, {value:#x};"

    def one_range(name: str) -> str:
        w = widths[name]
        return rng.choice(RANGES)[1].format(w=w, n=name, m=31 if w > 16 else 15, s=w - 6)

    yield ""
    for name in names:
        yield from (constant(name, value) for value in constants[name])
        for _, text in RANGES:
            w = widths[name]
            yield text.format(w=w, n=name, m=31 if w > 16 else 15, s=w - 6)
    for count in range(2, len(names) + 1):
        for chosen in itertools.combinations(names, count):
            for _ in range(24):
                yield " ".join(constant(n, rng.choice(constants[n])) for n in chosen)
            for _ in range(12):
                yield " ".join(
                    constant(n, rng.choice(constants[n])) if rng.random() < 0.5 else one_range(n)
                    for n in chosen
                )


def kernel(number: int, form: Form, known: Sequence[str]) -> str:
    """A kernel that stores the result of each variant, one array behind the other."""
    names = NAMES[: len(form.kinds)]
    widths = dict(zip(names, map(width_of, form.kinds), strict=True))
    parameters = ", ".join(f".param .u64 p{name}" for name in (*names, "d"))
    lines = [f".visible .entry k{number}({parameters}) {{", ".reg .b64 %p, %o;"]
    lines += [".reg .b32 %g, %u;", "mov.u32 %g, %ctaid.x;", "mov.u32 %u, %tid.x;"]
    lines += [f"mad.lo.u32 %g, %g, {BLOCK}, %u;"]
    for name, w in widths.items():
        lines += [f".reg .b{w} %{name}0;", f"ld.param.u64 %p, [p{name}];"]
        lines += [f"mad.wide.u32 %p, %g, {w // 8}, %p;", f"ld.global.b{w} %{name}0, [%p];"]
    size = form.width // 8
    lines += ["ld.param.u64 %p, [pd];", f"mad.wide.u32 %p, %g, {size}, %p;"]
    for place, text in enumerate(known):
        own = " ".join(f".reg .b{w} %{n}; mov.b{w} %{n}, %{n}0;" for n, w in widths.items())
        lines += [f"{{ .reg .b{form.width} %d; {own} {text} {form.body}"]
        lines += [f"st.global.b{form.width} [%p+{place * LANES * size}], %d; }}"]
    return "\n".join([*lines, "ret;", "}"])


def arrays(form: Form) -> list[np.ndarray]:
    return [inputs(kind, place, LANES) for place, kind in enumerate(form.kinds)]


def prepare(options: argparse.Namespace) -> None:
    """Write modules, their results on the CPU backend, and cubins."""
    from tessera.backend.ptx_executor.device import Device
    from tessera.diagnostics import TesseraError
    from tessera.frontend.ptx.read_ptx import parse_module

    rng = random.Random(options.seed)
    works: list[tuple[Form, list[str]]] = []
    wanted = [form for form in forms() if re.search(options.only, form.name)]
    for form in wanted:
        known = list(dict.fromkeys(variants(form, rng)))
        works += [(form, known[i : i + PER_KERNEL]) for i in range(0, len(known), PER_KERNEL)]
    packed: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    head = ".version 8.6\n.target sm_90a\n.address_size 64\n"

    good: list[tuple[Form, list[str], np.ndarray]] = []
    for form, known in works:
        if form.name in left_out:
            continue
        text = head + kernel(0, form, known)
        try:
            with Device() as device:
                given = [device.array(one, f"in{i}") for i, one in enumerate(arrays(form))]
                out = device.array(np.zeros(len(known) * LANES, f"uint{form.width}"), "out")
                module = device.load(parse_module(text))
                module["k0"].launch(LANES // BLOCK, BLOCK, [*given, out])
                good.append((form, known, out.numpy().copy()))
        except TesseraError as error:
            left_out[form.name] = f"{error}"[:200]
    print(f"{len(good)} kernels, {len(left_out)} forms left out", flush=True)
    for at in range(0, len(good), PER_MODULE):
        some = good[at : at + PER_MODULE]
        text = head + "\n".join(kernel(i, form, known) for i, (form, known, _) in enumerate(some))
        row: dict[str, Any] = {"ptx": text, "works": some}
        for ptxas in options.ptxas:
            row[_version(ptxas)] = _compiled(ptxas, text)
        packed.append(row)
    options.folder.mkdir(parents=True, exist_ok=True)
    data = lzma.compress(pickle.dumps((packed, left_out)), preset=6)
    (options.folder / "constants.xz").write_bytes(data)
    print(f"{len(data)} bytes", left_out)


def _compiled(ptxas: str, text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, cubin = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        path.write_text(text)
        subprocess.run([ptxas, "-arch", "sm_90a", str(path), "-o", str(cubin)], check=True)
        return cubin.read_bytes()


def _version(ptxas: str) -> str:
    said = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release ([\d.]+)", said)
    assert found is not None
    return found[1]


def other_bits(row: dict[str, Any]) -> tuple[Counter[str], dict[str, Any]]:
    """How many statements each compiler's code of a module ran, and those with other bits."""
    from tests.gpu.record_numerics import Gpu

    gpu = Gpu()
    counts: Counter[str] = Counter()
    other: dict[str, Any] = {}
    compilers = {name: row[name] for name in row if name not in ("ptx", "works")}
    for compiler, image in (compilers | {"driver": row["ptx"]}).items():
        handle = gpu.load(image)
        for number, (form, known, expected) in enumerate(row["works"]):
            out = np.zeros_like(expected)
            given = arrays(form)
            pointers = [gpu.upload(one) for one in (*given, out)]
            gpu.launch(handle, f"k{number}", LANES // BLOCK, BLOCK, pointers)
            found = gpu.download(pointers[-1], out)
            for pointer in pointers:
                gpu.free(pointer)
            counts[compiler] += len(known)
            wrong = (found != expected).reshape(len(known), LANES)
            for place in map(int, np.flatnonzero(wrong.any(axis=1))):
                lane = int(np.flatnonzero(wrong[place])[0])
                at = place * LANES + lane
                case = other.setdefault(form.name, {}).setdefault(f"{known[place]} {form.body}", {})
                values = [hex(int(one[lane])) for one in given]
                case[compiler] = [values, hex(int(found[at])), hex(int(expected[at]))]
    return counts, other


def run(options: argparse.Namespace) -> None:
    """Run what each compiler made, and count the results that are not those of the CPU backend."""
    from tests.gpu.check_regions import gpu_name

    packed, left_out = pickle.loads(lzma.decompress((options.folder / "constants.xz").read_bytes()))
    counts: Counter[str] = Counter()
    other: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for ran, wrong in pool.map(other_bits, packed):
            counts += ran
            for name, cases in wrong.items():
                other.setdefault(name, {}).update(cases)
    result = gpu_name() | {
        "statements": dict(counts),
        "forms": len({form.name for row in packed for form, _, _ in row["works"]}),
        "left_out": left_out,
        "other_bits": {name: len(cases) for name, cases in sorted(other.items())},
        "examples": {name: dict(list(cases.items())[:40]) for name, cases in sorted(other.items())},
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "examples"}, indent=1)[:4000])


def main() -> None:
    """One of the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--ptxas", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--only", default="", help="forms of which the name has this pattern")
    options = parser.parse_args()
    {"prepare": prepare, "run": run}[options.part](options)


if __name__ == "__main__":
    main()
