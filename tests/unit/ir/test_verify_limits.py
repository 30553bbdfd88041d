"""Findings stay few and short, however many faults a module has and however long its names are."""

from __future__ import annotations

import time

import pytest

from tessera.diagnostics import LONGEST_TEXT, Diagnostic, Source, TesseraError
from tessera.frontend.ptx.read_ptx import load_module
from tessera.ir.verify_ptx.module import MAX_ERRORS

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k()\n{\n"


def findings(text: str) -> tuple[Diagnostic, ...]:
    """Errors if there are any, and warnings."""
    try:
        return load_module(Source("long.ptx", text))[1]
    except TesseraError as failure:
        return failure.diagnostics


@pytest.mark.parametrize(
    "line",
    [".reg .b32 a;\n", "mov.b32 %undeclared{0}, 1;\n", "unknown{0}.b32;\n", "ret 1;\n"],
    ids=["duplicates", "undeclared", "opcodes", "counts"],
)
def test_thousands_of_faults_take_no_time(line: str) -> None:
    text = HEAD + "".join(line.format(i) for i in range(20_000)) + "}\n"
    started = time.process_time()
    assert len(findings(text)) == MAX_ERRORS
    assert time.process_time() - started < 20  # minutes, were all of them reported


@pytest.mark.parametrize("statement", ["{0};", "mov.b32 %{0}, 1;", "add.{0} 1;", "{0}: {0}: ret;"])
def test_a_name_of_a_megabyte_is_cut_in_messages(statement: str) -> None:
    reported = findings(HEAD + statement.format("a" * 1_000_000) + "\nret;\n}\n")
    assert reported
    for found in reported:
        label = found.primary.text if found.primary else ""
        assert len(str(found.headline)) <= LONGEST_TEXT
        assert len(label) <= LONGEST_TEXT
        assert len(found.hint or "") <= LONGEST_TEXT


@pytest.mark.parametrize(
    "body",
    [
        ".reg .b32 a;\nmov.b32 a, 1;\n.reg .b32 a;\n",
        ".reg .b32 a;\nmov.b32 a, 1;\n.reg .b64 a;\n",
        ".reg .b32 %r<5>;\n.reg .b32 %r<5>;\n",
        ".reg .b32 %r<5>;\n.reg .b32 %r3;\n",
        ".reg .b32 %r<5>;\nmov.b32 %r1, 1;\n.reg .b32 %r<5>;\n",
        ".shared .b32 s;\n.shared .b32 s;\n",
        ".reg .b32 a;\n.shared .b32 a;\n",
        ".reg .b32 a;\n{\n.reg .b32 b;\n.reg .b32 b;\nmov.b32 b, 1;\n}\n",
        "L: ret;\nL: ret;\n",
        ".reg .b32 a, a;\n",
    ],
)
def test_a_name_declared_twice(body: str) -> None:
    for _ in range(2):  # what was read once is remembered
        assert [found.code for found in findings(f"{HEAD}{body}ret;\n}}\n")] == ["TSR1021"]


def test_a_block_may_declare_a_name_again() -> None:
    assert findings(HEAD + ".reg .b32 a;\n{\n.reg .b32 a;\nmov.b32 a, 1;\n}\nret;\n}\n") == ()
