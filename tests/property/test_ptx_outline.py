"""A body that is verified by its outline gives the findings that all of its statements give."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from tessera.diagnostics import Diagnostic, Source, TesseraError
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.ptx import syntax as ptx
from tessera.ir.verify_ptx.module import verify_module
from tessera.passes.kernel_facts.summarise_program import ModuleSummary, summarise_module
from tests.helpers.corpus import extracted, manifest
from tests.helpers.share import least

Change = Callable[[list[str], random.Random], None]
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n"
REGISTERS = ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n"


def findings(text: str, *, read_all: bool) -> list[tuple[object, ...]] | str:
    try:
        module = parse_source(Source("t.ptx", text))
    except TesseraError:
        return "not PTX"
    if read_all:
        for function in module.functions():
            assert function.body is None or function.unread is None
    return [_told(one) for one in verify_module(module)]


def _told(one: Diagnostic) -> tuple[object, ...]:
    return (one.code, one.severity, str(one.headline), repr(one))


def _pick(lines: list[str], chance: random.Random) -> int:
    return chance.randrange(len(lines))


def delete(lines: list[str], chance: random.Random) -> None:
    del lines[_pick(lines, chance)]


def repeat(lines: list[str], chance: random.Random) -> None:
    at = _pick(lines, chance)
    lines.insert(_pick(lines, chance), lines[at])


def _within(pattern: str, replacement: str) -> Change:
    def change(lines: list[str], chance: random.Random) -> None:
        chosen = [at for at, line in enumerate(lines) if re.search(pattern, line)]
        if chosen:
            at = chance.choice(chosen)
            lines[at] = re.sub(pattern, replacement, lines[at], count=1)

    return change


CHANGES: tuple[Change, ...] = (
    delete,
    repeat,
    _within(r"(%[a-z]+)\d+", r"\g<1>99999"),
    _within(r"%r(?=\d)", "%rd"),
    _within(r"%f(?=\d)", "%r"),
    _within(r"\.[suf]32", ".b7"),
    _within(r"\b(add|mul|ld|st|mov)\b", r"\1x"),
    _within(r", [^,;]+;", ";"),
    _within(r"\$L__BB(\d+)_\d+", r"$L__BB\1_9999"),
    _within(r"<\d+>", "<2>"),
)


def small_files() -> list[str]:
    folder = extracted()
    chosen = [e["file"] for e in manifest(folder) if 3_000 < e["bytes"] < 20_000]
    return [(folder / name).read_bytes().decode() for name in chosen[::17]]


def test_changed_files_give_the_findings_of_all_their_statements() -> None:
    chance = random.Random(14)
    different = 0
    for text in small_files():
        for change in CHANGES:
            lines = text.splitlines(keepends=True)
            change(lines, chance)
            changed = "".join(lines)
            fast = findings(changed, read_all=False)
            assert fast == findings(changed, read_all=True), changed
            different += bool(fast)
    assert different > 30


@pytest.mark.parametrize(
    "body",
    [
        "%r1 = 0;",
        ".reg .b32 %r<9>;\nmov.u32 %r1, 0;\n.reg .b32 %r<9>;\n",
        "mov.u32 %r1, 0;\n.reg .b32 %r<9>;\nmov.u32 %r2, 0;\n",
        REGISTERS + "mov.u32 %r1, 0;\nmov.u32 %r9, 0;\n",
        REGISTERS + ".reg .f32 %r<12>;\nmov.u32 %r1, 0;\nmov.u32 %r9, 0;\n",
        REGISTERS + "{ .reg .f32 %r<9>; mov.u32 %r2, 0; }\n{ .reg .f32 %q<9>; }\nmov.u32 %q1, 0;\n",
        REGISTERS + "L: mov.u32 %r1, 0;\nL: mov.u32 %r1, 0;\n",
        REGISTERS + "bra A; bra B; A: ret;\n",
        REGISTERS + "A: { B: { ret; C: } } D: { bra A; } bra D; A: { ret; }\n",
        REGISTERS + "A: { mov.u32 %r1, 0; } A: { mov.u32 %r2, 0; }\n",
        REGISTERS + "{ A: ret; }\nbra A;\n",
        REGISTERS + "{ A: ret; } // callseq; }\n@%p1 bra B; @%p2 bra B; B: mov.u32 %r1, _;\n",
        REGISTERS + 'mov.u32 %r1, 1;\n.pragma "a;b"; mov.u32 %r9, 1;\n',
        REGISTERS + ".loc 1 2 3\nmov.u32 %r1, 0; .loc 1 3 3 mov.u32 %x, 0;\n",
        ".reg .b32 %r1<20>;\n.reg .f32 %r<3>;\nmov.u32 %r15, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;\n",
        ".reg .b32 r<3>;\nmov.u32 r1, 0; mov.u32 r2, 0; mov.u32 r3, 0; mov.u32 xr1, 0;\n",
        REGISTERS + "L: { M: { bra L; bra M; bra N; } N: ret; }\n",
    ],
)
def test_what_an_outline_must_not_hide(body: str) -> None:
    text = f"{HEAD}{body}}}\n"
    assert findings(text, read_all=False) == findings(text, read_all=True)


# Statements and pieces of statements, of which random bodies are made.
PIECES = [
    ".reg .b32 %r<9>;",
    ".reg .f32 %f<5>;",
    ".reg .pred %p<3>;",
    ".reg .b32 %x;",
    ".reg .f32 %r2;",
    ".reg .b32 r<4>;",
    ".local .b8 a[4];",
    ".param .b32 q;",
    ".shared .b32 s;",
    "{ .shared .b8 t; }",
    "{ .reg .b64 %d; mov.b64 %d, 0; }",
    "{ .param .b32 o; st.param.b32 [o], 7; call k, (o); }",
    "call k, (q);",
    "mov.u32 %r1, s;",
    "{",
    "}",
    "{ .reg .b32 %r3; mov.b32 %r3, %r1; }",
    "A:",
    "B:",
    "$L1:",
    "$L2 :",
    "bra A;",
    "@%p1 bra $L1;",
    "@!%p2 bra $L2;",
    "bra.uni B;",
    "mov.b32 %r1, 5;",
    "mov.b32 %r8, %r1;",
    "mov.b32 %r9, %r1;",
    "mov.b32 %x, r3;",
    "mov.b32 r1, 0x7f;",
    "add.f32 %f1, %f2, 0f3F800000;",
    "add.f32 %f1, %f2, %r1;",
    "ret;",
    ";",
    "ld.param.u32 %r1, [q];",
    "ld.local.u32 %r1, [a+4];",
    "mov.u32 %r1, %tid.x;",
    "mov.u32 %r1, %tid",
    ";",
    ", ",
    "%r4",
    ".loc 1 2 3",
    ".loc 1 2 3, function_name f, inlined_at 1 2 3",
    "// } ;\n",
    "/* ; */",
    '# 1 "x"\n',
    '.pragma "nounroll";',
    '.pragma "a;b";',
    "mov.b32 %0b32, 1;",
    "P: .callprototype _ (.param .b32 _, .param .align 8 .b8 _[16]);",
    "$Q : .callprototype (.param .b32 _) _ ();",
    "call %rd1, (q), P;",
    "R: .branchtargets A, B;",
    "$S: .branchtargets $L1, $L2;",
    "T: .calltargets k, A;",
    "brx.idx %r1, R;",
    "brx.idx %r1, $S;",
    ".branchtargets A;",
    "A: P: .callprototype _;",
    "bar.sync 16;",
    "bar.sync 0;",
    "add.s32 %r1, %r2, -7;",
    "mov.u32 %r1, 1 + 2 * (3 << 1);",
    "mov.u32 %r1, 1 / 0;",
    "mov.u32 %r1, 6 / 3;",
    "mov.u32 %r2, -WARP_SZ;",
    "mov.u32 %r2, s + 4 * 2;",
    "mov.f32 %f1, (1 + 2);",
    "mov.pred %p1, !0;",
    "@%p1 mov.u32 %r1, ~5;",
    "@%r1 mov.u32 %r1, ~5;",
    "ld.shared.u32 %r1, s[1];",
    "ld.local.u32 %r1, a[4];",
    "vmad.s32.s32.s32 %r1, %r2.b1, %r3.b2, -%r4;",
    "vmad.s32.s32.s32 %r1, %r2.b1, %r3.b2, -%f1;",
    "L3: mov.u32 %r1, ~5;",
    "U: .callprototype _ (.param .b32 _) .noreturn;",
    "call %rd1, (q), U;",
    "\v",
    "\x85",
]


def test_random_bodies_are_read_and_judged_as_the_token_grammar_does() -> None:
    chance = random.Random(3)
    read = clean = 0
    for _ in range(least(500, 150)):
        body = " ".join(chance.choices(PIECES, k=chance.randrange(1, 12)))
        text = f"{HEAD}{REGISTERS if chance.random() < 0.7 else ''}{body}\n}}\n"
        fast, slow = (_judged(text, with_runs=runs) for runs in (True, False))
        assert fast == slow, text
        read += fast is not None
        clean += fast is not None and not fast[1]
    assert read > least(60, 15)
    assert clean > least(20, 4)


HEADS = [
    ".func f() .abi_preserve 8 .abi_preserve_control 2 { ret; }",
    ".func (.reg .u32 r) f (.reg .u32 a, .reg .pred b) { @b mov.u32 r, a; ret; }",
    ".func () f () { ret; }",
    ".func f(.param .align 4 .b8 v[]) { ret; }",
    ".visible .entry f(.param .b8 v[]) { ret; }",
    ".visible /* a */ .entry f( // b\n .param /* c */ .u64 p[/**/2]) .maxntid /* d */ 8 { ret; }",
    ".visible /* a .entry f() { ret; }",
    '# 1 "a//b"\n.visible /* a */ .entry f() { ret; }',
    '#/**/1 "a"\n.visible .entry f() { ret; }',
    "@@DWARF /* a\n.visible .entry f() { ret; } // */",
    '.section .debug_str { .b8 "/*" } .func /**/ f() { ret; } // */',
    '.entry f() .pragma "a", "b//c";\n{ ret; }',
    '.entry f() .pragma "a" { ret; }',
    '.entry f() .maxntid 8 .pragma "a"; ;',
    '.pragma "a//b", "c";',
    ".func f() { ret; } .alias g, f; .alias g1 , h;",
    ".func f() { ret; // }\n.func g() { ret; }",
    '.func f() { ret; # 1 "}"\n }',
    ".func f() { ret; } .func g() { ret; }\n}",
    ".global .u32 t[2] = { 1 + 2, 3 }; .global .u32 u[2] = { 1 + 2, 3 };",
    ".global .u32 t = 5, u = { 1 + 2, 3 }; .global .u32 t = 1 + 2;",
    ".global .attribute(.unified(19, 95)) .u32 t;",
]


@pytest.mark.parametrize("head", HEADS)
def test_heads_are_read_as_the_token_grammar_does(head: str) -> None:
    for address_size in (".address_size 64", ".address_size /* 32 */ 64", ""):
        text = f".version 9.0\n.target sm_90\n{address_size}\n{head}\n"
        assert _judged(text, with_runs=True) == _judged(text, with_runs=False)


def _judged(
    text: str, *, with_runs: bool
) -> tuple[ptx.Module, list[tuple[object, ...]], ModuleSummary] | None:
    try:
        module = parse_source(Source("t.ptx", text), with_runs=with_runs)
    except TesseraError:
        return None
    summary = summarise_module(module)  # from outlines, where there are any
    return module, [_told(one) for one in verify_module(module)], summary


def test_an_outline_is_small_and_stands_for_all() -> None:
    lines = "".join(f"add.s32 %r{i % 8}, %r{i % 7}, {i % 3};\n" for i in range(3_000))
    module = parse_source(Source("t.ptx", f"{HEAD}{REGISTERS}{lines}ret;\n}}\n"))
    kernel = next(module.kernels())
    assert kernel.unread is not None
    outline = kernel.unread.outline
    assert outline is not None
    assert len(outline.statements()) == 2
    assert not verify_module(parse_source(Source("t.ptx", module.source.text)))  # type: ignore[union-attr]
    assert kernel.unread is not None, "nobody asked for the body"
    assert len(kernel.body or ()) == 3 + 3_000 + 1
    assert kernel.unread is None


def test_a_file_is_listed_without_its_bodies() -> None:
    unread = functions = 0
    for text in small_files():
        module, whole = (parse_source(Source("t.ptx", text)) for _ in range(2))
        for function in whole.functions():
            assert function.body is None or function.unread is None
        assert summarise_module(module) == summarise_module(whole)
        unread += sum(function.unread is not None for function in module.functions())
        functions += sum(function.has_body for function in module.functions())
    assert unread > 0.9 * functions > 0


@pytest.mark.parametrize(
    "body",
    [
        "{ call f; } call g;",
        "call g; { call f; } { call g; } { call f; }",
        "{ { call g; } call f; }",
        "{ .reg .b64 %d; } .reg .f32 %q; ret;",
        "{ .local .b8 x; } { .local .b64 x; } { .local .b8 x; } ret;",
        ".reg .b32 %r; { .reg .b32 %s; } ret; .reg .b16 %h;",
    ],
)
def test_orders_that_an_outline_does_not_tell(body: str) -> None:
    functions = ".func f { ret; }\n.func g { ret; }\n"
    text = f".version 8.0\n.target sm_80\n{functions}.entry k() {{ {body} }}\n"
    module, whole = (parse_source(Source("t.ptx", text)) for _ in range(2))
    for function in whole.functions():
        assert function.body is None or function.unread is None
    assert summarise_module(module) == summarise_module(whole)
