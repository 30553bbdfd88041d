"""The conformance set of the trace format, the keys of other producers, and the writer that needs
no Tessera."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.contents.open_contents import open_contents
from tessera.frontend.trace.read_trace import parse_trace
from tessera.frontend.trace.records import RECORDS
from tessera.ir.program.print_trace import print_program, program_digest
from tessera.ir.program.program import Program

FOLDER = Path(__file__).parents[3] / "examples" / "trace-format"
FILES = sorted(FOLDER.glob("*valid/*.ptx"))


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_verdict(file: Path) -> None:
    text = _text(file)
    verdict = text.splitlines()[0].removeprefix("// verdict: ")
    assert (verdict == "valid") == (file.parent.name == "valid")
    try:
        program = parse_trace(text)
    except TesseraError as refusal:
        first = refusal.diagnostics[0]
        assert first.primary is not None
        line = first.primary.span.source.position(first.primary.span.start)[0]
        assert verdict == f"refused, {first.code}, line {line}"
        return
    assert verdict == "valid"
    printed = print_program(program)
    again = parse_trace(printed)
    assert again == program
    assert _notes(again) == _notes(program)
    assert print_program(again) == printed


def test_the_set_has_every_record() -> None:
    words = {
        line.split()[1]
        for file in FILES
        for line in _text(file).splitlines()
        if line.startswith("//! ") and file.parent.name == "valid"
    }
    assert set(RECORDS) <= words
    assert len(FILES) > 100


def test_notes_are_kept_and_change_nothing_else() -> None:
    with_notes = _text(FOLDER / "valid" / "keys-of-other-producers.ptx")
    program = parse_trace(with_notes)
    assert _notes(program) == [
        ("cupy:version", "14.0.1"),
        ("acme:layout", '{"order": [1, 0]}'),
        ("acme:source", "kernels.cu"),
        ("acme:line", "12"),
        ("numba:tags", "[a, b]"),
    ]
    bare = parse_trace(print_program(program, with_notes=False))
    assert bare == program
    assert not _notes(bare)
    assert program_digest(bare) == program_digest(program)


def _notes(program: Program) -> list[tuple[str, str]]:
    variants = [code for module in program.modules for code in module.variants]
    records = (program, *program.buffers, *variants, *program.steps)
    return [note for record in records for note in record.notes]


@pytest.fixture(scope="module")
def writer() -> Any:
    """The module `trace_writer`, as a tool that copied it would import it."""
    spec = importlib.util.spec_from_file_location("trace_writer", FOLDER / "trace_writer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_what_the_writer_writes(writer: Any, tmp_path: Path) -> None:
    trace = writer.TraceWriter("acme", {"version": "1"})
    numbers = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = trace.buffer("x", "f32", (3, 4), "input", numbers.tobytes(), {"layer": "3"})
    packed = trace.buffer("packed", "e4m3", (5,), "weight", bytes(range(5)))
    y = trace.buffer("y", "u16", (64,), "output")
    code = ".version 8.0\n.target sm_80\n//! a comment\n.visible .entry k({}) {{ ret; }}"
    trace.module("m", code.format(".param .u64 p, .param .f32 a, .param .align 8 .b8 s[16]"))
    structure = writer.Struct(b"\1" * 16, {8: packed + 1})
    arguments = [x + 16, writer.Scalar("f32", float("-inf")), structure]
    trace.memset(y, 128, 255, stream="side")
    trace.event("filled", stream="side")
    trace.wait("filled", stream="0")
    trace.launch("m.k", (2, 1, 1), (32, 1, 1), arguments, shared_bytes=64, cluster=(2, 1, 1))
    trace.memcpy(y, x, 48)
    trace.save(tmp_path / "t.ptx")
    program = parse_trace((tmp_path / "t.ptx").read_text("utf-8"))
    expected = """\
//! tessera.trace 1 acme:version=1
//! buffer x bytes=48 role=input dtype=f32 shape=3x4 acme:layer=3
//! buffer packed bytes=5 role=weight dtype=e4m3 shape=5
//! buffer y bytes=128 role=output dtype=u16 shape=64
//! resident data=t.safetensors
//! module m
.version 8.0
.target sm_80
// ! a comment
.visible .entry k(.param .u64 p, .param .f32 a, .param .align 8 .b8 s[16]) { ret; }
//! memset y bytes=128 value=0xff stream=side
//! event filled stream=side
//! wait filled
//! launch m.k grid=2,1,1 block=32,1,1 cluster=2,1,1 smem=64 args=[x+16, f32:-inf, \
b8[16]:01010101010101010000000000000000@{8:packed+1}]
//! memcpy y x bytes=48
"""
    assert print_program(program) == expected
    with open_contents(program, tmp_path) as contents:
        given = {buffer.name: contents.read(buffer) for buffer in program.buffers[:2]}
    assert bytes(given["x"]) == numbers.tobytes()
    assert bytes(given["packed"]) == bytes(range(5))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.ptx", "t.safetensors"]
    assert len((FOLDER / "trace_writer.py").read_text("utf-8").splitlines()) < 200
