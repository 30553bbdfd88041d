"""What `tessc analyze` says of a module is what its text says."""

from __future__ import annotations

from pathlib import Path

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.passes.kernel_facts.summarise_program import (
    Count,
    FunctionSummary,
    ModuleSummary,
    summarise_module,
)

TESTS = Path(__file__).parents[2]
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


def summarise(body: str) -> ModuleSummary:
    return summarise_module(parse_module(HEADER + body))


def kernel(body: str, module: str = "") -> FunctionSummary:
    return summarise(f"{module}\n.visible .entry k()\n{{\n{body}\nret;\n}}\n").kernels[0]


def test_parameters() -> None:
    summary = summarise(
        ".entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr b, .param .u64 c,"
        " .param .align 8 .b8 d[24], .param .b128 e, .param .f16 f) { ret; }"
    )
    found = [
        (p.name, p.type, p.bytes, p.align, p.is_array, p.pointer_space, p.pointer_align)
        for p in summary.kernels[0].parameters
    ]
    assert found == [
        ("a", "u64", 8, 8, False, "global", 16),
        ("b", "u64", 8, 8, False, "generic", None),
        ("c", "u64", 8, 8, False, None, None),
        ("d", "b8", 24, 8, True, None, None),
        ("e", "b128", 16, 16, False, None, None),
        ("f", "f16", 2, 2, False, None, None),
    ]


def test_registers_are_added_up_by_type_over_all_scopes() -> None:
    found = kernel(
        ".reg .b32 %r<5>, x; .reg .pred %p<2>; .reg .v4 .f32 v; { .reg .b32 %r<2>; .reg .f64 d; }"
    )
    assert found.registers == (
        Count("b32", 8),
        Count("pred", 2),
        Count("f32", 4),
        Count("f64", 1),
    )


def test_static_shared_memory_is_what_the_kernel_names() -> None:
    module = (
        ".shared .align 4 .b8 used[10];\n.shared .b8 unused[100];\n.shared .align 8 .b64 also;\n"
    )
    found = kernel(
        ".reg .b32 %r<3>; ld.shared.b32 %r1, [used+4]; mov.u32 %r2, also;"
        " { .shared .align 16 .b8 own[32]; }",
        module,
    )
    assert found.shared_bytes == 64
    assert not found.uses_dynamic_shared


def test_shared_memory_of_functions_that_are_called() -> None:
    module = (
        ".shared .b8 deep[64];\n"
        ".func inner() { .reg .b32 %r; ld.shared.b32 %r, [deep]; call outer; ret; }\n"
        ".func outer() { .shared .b8 own[16]; call inner; ret; }\n"
    )
    assert kernel("call outer;", module.replace("call outer; ret", "ret")).shared_bytes == 80
    assert kernel("", module.replace("call outer; ret", "ret")).shared_bytes == 0


def test_recursive_calls_end() -> None:
    module = (
        ".shared .b8 deep[64];\n.func inner();\n"
        ".func outer() { call inner; ret; }\n"
        ".func inner() { .reg .b32 %r; ld.shared.b32 %r, [deep]; call outer; ret; }\n"
    )
    assert kernel("call outer;", module).shared_bytes == 64


def test_dynamic_shared_memory() -> None:
    module = ".extern .shared .align 16 .b8 pool[];\n"
    assert kernel(".reg .b32 %r; mov.u32 %r, pool;", module).uses_dynamic_shared
    assert not kernel("", module).uses_dynamic_shared


def test_local_memory() -> None:
    assert kernel(".local .align 8 .b8 depot[12]; .local .b64 x;").local_bytes == 24


def test_instruction_mix() -> None:
    found = kernel(
        ".reg .b32 %r<3>; .reg .f32 %f; .reg .b64 %rd; .reg .pred %p;"
        " add.s32 %r1, %r2, 1; mul.lo.s32 %r1, %r1, %r2; add.f32 %f, %f, %f;"
        " @%p ld.global.f32 %f, [%rd]; bar.sync 0;"
    )
    assert found.instructions == 6
    assert found.mix == (
        Count("integer", 2),
        Count("barrier", 1),
        Count("control", 1),
        Count("float", 1),
        Count("memory global", 1),
    )


def test_calls() -> None:
    module = (
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
        ".func helper(.reg .b32 x) { ret; }\n"
    )
    found = kernel(
        ".reg .b32 %r; .reg .b64 %f, %a; .param .b64 p0; .param .b64 p1; .param .b32 q;\n"
        "call.uni (q), vprintf, (p0, p1);\ncall helper, (%r);\ncall helper, (%r);\n"
        "proto: .callprototype _ (.reg .b32 x);\ncall %f, (%r), proto;",
        module,
    )
    assert found.calls == (Count("vprintf", 1), Count("helper", 2))
    assert found.indirect_calls == 1


def test_functions_declarations_and_variables() -> None:
    summary = summarise(
        ".extern .func abort();\n.func (.reg .b32 r) later(.reg .b32 x);\n"
        ".visible .global .align 8 .b8 table[] = {1, 2, 3};\n.const .f32 c = 1.0;\n"
        ".func (.reg .b32 r) later(.reg .b32 x) { mov.b32 r, x; ret; }\n"
    )
    assert summary.kernels == ()
    assert [f.name for f in summary.functions] == ["later"]
    assert [r.name for r in summary.functions[0].returns] == ["r"]
    assert summary.declarations == ("abort",)
    table, constant = summary.variables
    assert (table.space, table.bytes, table.align) == ("global", 3, 8)
    assert table.linkage == "visible"
    assert table.is_initialized
    assert (constant.space, constant.bytes, constant.linkage) == ("const", 4, None)


def test_lines_and_directives() -> None:
    summary = summarise(".entry a() { ret; }\n\n.entry b()\n.maxntid 128, 1, 1\n{ ret; }\n")
    assert [f.line for f in summary.kernels] == [4, 6]
    assert [d.name for d in summary.kernels[1].directives] == ["maxntid"]


def test_unknown_opcodes_are_counted() -> None:
    assert kernel(".reg .pred p; @p _fnord.b32 p;").mix == (
        Count("control", 1),
        Count("unknown", 1),
    )


def test_every_kernel_of_the_test_suite_is_known() -> None:
    files = sorted((TESTS / "data" / "kernels" / "ptx").glob("*.ptx"))
    assert files
    for path in files:
        summary = summarise_module(parse_module(path.read_text("utf-8"), path.name))
        assert summary.kernels
        assert all(c.name != "unknown" for k in summary.kernels for c in k.mix)
