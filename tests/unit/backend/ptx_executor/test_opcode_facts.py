"""What the executor knows of opcodes beside its handlers is what the opcode table says."""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tessera.backend.ptx_executor.emit.handlers import TABLE
from tessera.backend.ptx_executor.emit.lower import is_cta_barrier, is_warp_wide
from tessera.backend.ptx_executor.emit.namespace import NAMESPACE
from tessera.backend.ptx_executor.emit.program import compile_kernel
from tessera.backend.ptx_executor.simt.builtins import BUILTINS
from tessera.backend.ptx_executor.simt.compiled import KernelProgram
from tessera.backend.ptx_executor.simt.livelock import is_still
from tessera.diagnostics import Severity, TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.opcodes import Flow, ThreadScope, meaning_of
from tessera.ir.ptx import syntax as ptx
from tessera.ir.verify_ptx.module import verify_module

DATA = Path(__file__).parents[3] / "data" / "opcodes"
FILES = sorted(DATA.glob("*.ptx"))
# Examples of targets with none that the executor runs.
NEWER = {"sm_100a", "sm_103a", "sm_107a"}
# Sections of the ISA whose instructions only compute registers from registers.
COMPUTING = {
    "integer arithmetic",
    "extended precision",
    "floating point",
    "comparison and selection",
    "logic and shift",
    "video",
}


def instructions(module: ptx.Module) -> Iterator[ptx.Instruction]:
    for function in module.functions():
        for statement in function.body or ():
            if isinstance(statement, ptx.Instruction):
                yield statement


def computing_opcodes() -> set[str]:
    names, section = set(), ""
    for line in (DATA / "isa_opcodes.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            section = line[2:]
        elif line and section in COMPUTING:
            names.add(line.split(".")[0])
    return names


@pytest.fixture(scope="module")
def examples() -> list[ptx.Instruction]:
    """Every form that ptxas accepts, of the opcodes that the executor runs."""
    modules = [parse_module(path.read_text("utf-8")) for path in FILES]
    return [
        example
        for module in modules
        for example in instructions(module)
        if example.opcode.name in TABLE
    ]


def test_every_opcode_that_only_computes_changes_nothing_when_repeated(examples) -> None:
    names = computing_opcodes() & set(TABLE)
    assert {"add", "bmsk", "szext", "madc", "vadd", "vset4", "lop3", "tanh"} <= names
    seen = {example.opcode.name: example for example in examples if example.opcode.name in names}
    assert names - set(seen) == set(), "give these an example"
    wrong = {
        str(example.opcode)
        for example in examples
        if example.opcode.name in names and not is_still(example)
    }
    assert wrong == set()


def test_every_instruction_without_effects_changes_nothing_when_repeated(examples) -> None:
    wrong = set()
    for example in examples:
        means = meaning_of(example)
        assert means is not None
        assert means.fits
        writes = any(effect.access.writes for effect in means.effects)
        if not writes and not means.side_effects and not is_still(example):
            wrong.add(str(example.opcode))
    assert wrong == set()


def test_whatever_writes_ends_or_meets_other_warps_is_a_change(examples) -> None:
    wrong = set()
    for example in examples:
        means = meaning_of(example)
        assert means is not None
        writes = any(effect.access.writes for effect in means.effects)
        leaves = means.flow in {Flow.CALL, Flow.RETURN, Flow.EXIT, Flow.TRAP}
        wide = means.scope not in {ThreadScope.THREAD, ThreadScope.WARP}
        if (writes or leaves or wide) and example.opcode.name != "atom" and is_still(example):
            wrong.add(str(example.opcode))
    assert wrong == set()


@pytest.mark.parametrize(
    "text",
    ["mov.u32 %r1, %clock;", "mov.u64 %rd1, %globaltimer;", "atom.add.u32 %r1, [%rd1], 1;",
     "cp.async.wait_all;", "st.u32 [%rd1], 0;", "bar.sync 0;"],
)  # fmt: skip
def test_clocks_and_changes(text) -> None:
    registers = ".reg .b32 %r<9>; .reg .b64 %rd<9>;"
    header = ".version 8.6\n.target sm_90a\n.address_size 64\n"
    module = parse_module(f"{header}.visible .entry k() {{ {registers} {text} ret; }}")
    assert not is_still(next(instructions(module)))


def test_lanes_meet_where_the_table_says(examples) -> None:
    wide = {ThreadScope.WARP, ThreadScope.WARPGROUP}
    scopes = {
        example: meaning_of(example).scope
        for example in examples
        if example.opcode.name != "setmaxnreg"
    }
    assert {
        str(example.opcode)
        for example in scopes
        if is_warp_wide(example) != (scopes[example] in wide)
    } == set()
    for example, scope in scopes.items():
        assert is_cta_barrier(example) == (scope in {ThreadScope.CTA, ThreadScope.CLUSTER}), str(
            example.opcode
        )
    assert {"shfl", "wgmma", "tensormap", "bar"} <= {
        example.opcode.name for example in scopes if is_warp_wide(example)
    }


class Compiled(NamedTuple):
    """An example alone in its kernel: what is made of it, or why the executor refuses it."""

    file: str
    opcode: ptx.Opcode
    program: KernelProgram | None
    refused: str


@pytest.fixture(scope="module")
def tried() -> list[Compiled]:
    """Every example, compiled by itself."""
    results = []
    for path in FILES:
        module = parse_module(path.read_text("utf-8"))
        for kernel, example, alone in one_at_a_time(module):
            program, refused = None, ""
            try:
                program = compile_kernel(alone, kernel)
            except TesseraError as failure:
                refused = "; ".join(d.primary.text for d in failure.diagnostics if d.primary)
            results.append(Compiled(path.stem, example.opcode, program, refused))
    return results


@pytest.fixture(scope="module")
def compiled(tried) -> list[Compiled]:
    """The examples that the executor takes."""
    return [example for example in tried if example.program is not None]


def test_generated_code_calls_only_what_the_namespace_names(compiled) -> None:
    for example in compiled:
        for block in example.program.blocks:
            known = block.run.__globals__.keys() | vars(builtins).keys()
            assert used_globals(block.run) <= known, str(example.opcode)
    assert {example.file for example in compiled} >= {path.stem for path in FILES} - NEWER


def test_no_example_is_refused_because_a_function_is_missing(tried) -> None:
    """A call of `numerics` is tried when it is emitted: a form that it lacks is refused."""
    missing = [f"{one.opcode}: {one.refused}" for one in tried if "has no attribute" in one.refused]
    assert missing == []


def test_generated_code_calls_only_functions_that_exist(compiled) -> None:
    """Of other modules, and with temporaries: such calls are not tried when they are emitted."""
    missing = {
        f"{example.opcode}: {module}.{name}"
        for example in compiled
        for block in example.program.blocks
        for module, name in used_attributes(block.run)
        if isinstance(block.run.__globals__.get(module), ModuleType)
        and not hasattr(block.run.__globals__[module], name)
    }
    assert missing == set()


def test_every_handler_compiles_an_example(compiled) -> None:
    """A handler that takes none of its examples, because something that it needs is missing."""
    names = {example.opcode.name for example in compiled}
    assert set(TABLE) - names - {"%return"} == set()


def one_at_a_time(module: ptx.Module) -> Iterator[tuple[str, ptx.Instruction, ptx.Module]]:
    """The module again for each of its instructions, with nothing else in its kernel."""
    for kernel in module.kernels():
        for kept in kernel.body or ():
            if not isinstance(kept, ptx.Instruction):
                continue
            body = tuple(s for s in kernel.body if not isinstance(s, ptx.Instruction) or s is kept)
            items = tuple(
                replace(item, body=body) if item is kernel else item for item in module.items
            )
            yield kernel.name, kept, replace(module, items=items)


def used_globals(function) -> set[str]:
    return {i.argval for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL"}


def used_attributes(function) -> Iterator[tuple[str, str]]:
    """Global names with the attribute that is taken of each: `integer`, `sad`."""
    for first, second in pairwise(dis.get_instructions(function)):
        if first.opname == "LOAD_GLOBAL" and second.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            yield first.argval, second.argval


def test_generated_code_may_call_every_builtin() -> None:
    assert {f"builtin_{name}" for name in BUILTINS} <= NAMESPACE.keys()


DOUBLES = "{%fd1, %fd2}, {%fd3}, {%fd4}, {%fd5, %fd6}"
HALVES = "{%r1, %r2}, {%r3, %r4}, {%r5}, {%r1, %r2}"


@pytest.mark.parametrize(
    ("opcode", "operands"),
    [
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.bf16", DOUBLES),
        ("mma.sync.aligned.m8n8k4.row.col.f64.s4.f64.f64.f64", DOUBLES),
        ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16.bf16", HALVES),
        ("cvt.f32.f16", "%f1, %q1"),
        ("cvt.s32.s16", "%r1, %q1"),
    ],
)
def test_what_ptxas_takes_without_a_meaning_is_not_run(opcode: str, operands: str) -> None:
    registers = ".reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .f64 %fd<9>;\n.reg .b128 %q<9>;\n"
    head = ".version 8.6\n.target sm_90a\n.address_size 64\n.entry odd() {\n"
    module = parse_module(f"{head}{registers}{opcode} {operands};\n}}")
    assert not [d for d in verify_module(module) if d.severity is Severity.ERROR]
    with pytest.raises(TesseraError, match="the CPU backend cannot run"):
        compile_kernel(module, "odd")
