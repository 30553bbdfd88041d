"""Files that are not PTX: one error each, that says what the file is and what to do."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path
from unittest import mock

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.text.readfile import read_source, source_of_bytes
from tests.helpers.command import tessc

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n"


def elf(machine: int, kind: int = 2) -> bytes:
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    header[16:18] = kind.to_bytes(2, "little")
    header[18:20] = machine.to_bytes(2, "little")
    return bytes(header)


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("x.npy", b"data")
    return stream.getvalue()


REFUSED = [
    pytest.param(b"", "TSR1903", "is empty", id="empty"),
    pytest.param(b" \n\t\r\n", "TSR1903", "is empty", id="blank"),
    pytest.param(b"\xef\xbb\xbf", "TSR1903", "is empty", id="only a mark"),
    pytest.param(elf(190), "TSR1905", "is a cubin", id="cubin"),
    pytest.param(elf(62, 3), "TSR1905", "is an ELF shared library", id="shared library"),
    pytest.param(elf(62, 1), "TSR1905", "is an ELF object file", id="object"),
    pytest.param(b"\x7fELF", "TSR1905", "is an ELF file", id="truncated ELF"),
    pytest.param(b"\x50\xed\x55\xba\1\0\x10\0", "TSR1905", "is a CUDA fat binary", id="fatbin"),
    pytest.param(b"MZ\x90\0", "TSR1905", "is a Windows program", id="exe"),
    pytest.param(b"!<arch>\nx", "TSR1905", "is a static library", id="archive"),
    pytest.param(b"BC\xc0\xde5\x14", "TSR1910", "is LLVM bitcode", id="bitcode"),
    pytest.param(gzip.compress(PTX), "TSR1909", "is compressed with gzip", id="gzip"),
    pytest.param(b"\x28\xb5\x2f\xfd\x04", "TSR1909", "is compressed with zstd", id="zstd"),
    pytest.param(zipped(), "TSR1909", "is a zip file", id="zip"),
    pytest.param(PTX.decode().encode("utf-16"), "TSR1909", "is UTF-16 text", id="utf-16"),
    pytest.param(PTX.decode().encode("utf-16-le"), "TSR1909", "is UTF-16LE text", id="utf-16le"),
    pytest.param(PTX.decode().encode("utf-16-be"), "TSR1909", "is UTF-16BE text", id="utf-16be"),
    pytest.param(PTX.decode().encode("utf-32"), "TSR1909", "is UTF-32 text", id="utf-32"),
    pytest.param(b"\0" * 999, "TSR1909", "holds binary data", id="only NULs"),
    pytest.param(PTX[:30] + b"\0" + PTX[30:], "TSR1909", "has a NUL byte", id="NUL inside"),
    pytest.param(bytes(range(1, 9)) * 9, "TSR1909", "holds binary data", id="controls"),
    pytest.param(
        b"#include <cstdio>\n__global__ void k() {}\n", "TSR1910", "is CUDA C++", id="cuda"
    ),
    pytest.param(b"#include <vector>\nint x;\n", "TSR1910", "is C or C++ source", id="c++"),
    pytest.param(b"; ModuleID = 'k'\n", "TSR1910", "is LLVM IR", id="llvm"),
    pytest.param(b'target triple = "nvptx64"\n', "TSR1910", "is LLVM IR", id="nvvm"),
    pytest.param(b"#loc = loc(unknown)\nmodule {\n", "TSR1910", "is MLIR", id="mlir"),
    pytest.param(
        b"\tcode for sm_80\n\t\tFunction : k\n\t.headerflags @\n        /*0000*/ MOV R1 ;\n",
        "TSR1905",
        "is a listing of GPU machine code",
        id="sass",
    ),
    pytest.param(b"<!DOCTYPE html>\n<html>", "TSR1910", "is a web page", id="web page"),
    pytest.param(
        b"version https://git-lfs.github.com/spec/v1\n", "TSR1910", "is a Git LFS", id="lfs"
    ),
    pytest.param(b"import triton\n", "TSR1910", "is Python source", id="python"),
    pytest.param(b"tessera-plan 1\n", "TSR1910", "is a plan, not a trace", id="plan"),
    pytest.param(b"tessera-graph 2\n", "TSR1910", "is a kernel graph", id="graph"),
]


@pytest.mark.parametrize(("data", "code", "words"), REFUSED)
def test_refused(tmp_path: Path, data: bytes, code: str, words: str) -> None:
    path = tmp_path / "given"
    path.write_bytes(data)
    outcome = tessc("analyze", str(path), "--format", "concise")
    assert outcome.code == 1
    assert outcome.out == b""
    (line,) = outcome.err.splitlines()
    assert f"error[{code}] `{path}` {words}" in line


@pytest.mark.parametrize(("data", "code", "words"), REFUSED)
def test_refused_from_standard_input(data: bytes, code: str, words: str) -> None:
    outcome = tessc("analyze", "-", "--format", "concise", stdin=data)
    assert outcome.code == 1
    assert f"error[{code}] `<stdin>` {words}" in outcome.err


ACCEPTED = [
    pytest.param(PTX, id="plain"),
    pytest.param(b"\xef\xbb\xbf" + PTX, id="mark"),
    pytest.param(PTX.replace(b"\n", b"\r\n"), id="CRLF"),
    pytest.param(b"// caf\xe9 \xff\n" + PTX, id="Latin-1 in a comment"),
    pytest.param(b"// __global__ void k();\n// #include <x>\n" + PTX, id="quotes CUDA"),
    pytest.param("// ключ 鍵 🔑\n".encode() + PTX, id="UTF-8 in a comment"),
    pytest.param(PTX + b"\x1a", id="Ctrl-Z at the end"),
    pytest.param(PTX + b"\0", id="NUL at the end"),
]


@pytest.mark.parametrize("data", ACCEPTED)
def test_accepted(data: bytes) -> None:
    source = source_of_bytes(data, "k.ptx")
    assert source.text.encode("utf-8", "surrogateescape") == data.removeprefix(
        b"\xef\xbb\xbf"
    ).rstrip(b"\0")


def test_missing_file_suggests_a_near_name(tmp_path: Path) -> None:
    (tmp_path / "trace.ptx").write_bytes(PTX)
    outcome = tessc("analyze", str(tmp_path / "trce.ptx"))
    assert outcome.code == 1
    assert "error[TSR1900]: file not found" in outcome.err
    assert f"did you mean `{tmp_path / 'trace.ptx'}`?" in outcome.err


def test_folder(tmp_path: Path) -> None:
    outcome = tessc("analyze", str(tmp_path))
    assert outcome.code == 1
    assert "error[TSR1900]" in outcome.err


@pytest.mark.parametrize(
    "problem",
    [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")],
    ids=["permission", "input/output"],
)
def test_unreadable_file(tmp_path: Path, problem: OSError) -> None:
    path = tmp_path / "k.ptx"
    path.write_bytes(PTX)
    with mock.patch("builtins.open", side_effect=problem):
        outcome = tessc("analyze", str(path))
    assert outcome.code == 1
    assert f"error[TSR1900]: cannot read `{path}`: {problem.strerror.lower()}" in outcome.err


def test_name_with_a_nul() -> None:
    with pytest.raises(TesseraError, match="TSR1900"):
        read_source("a\0b")


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_bytes(PTX * 2000)
    with pytest.raises(TesseraError, match=r"error\[TSR1904\] .* more than 100000 bytes"):
        read_source(path, limit=100_000)
    assert read_source(path, limit=len(PTX) * 2000).text.encode() == PTX * 2000


def test_too_large_for_a_small_limit(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_bytes(PTX)
    with pytest.raises(TesseraError, match="TSR1904"):
        read_source(path, limit=10)


def test_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, PTX)
    os.close(writer)
    assert read_source(f"/dev/fd/{reader}").text == PTX.decode()
    os.close(reader)


def test_output_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_bytes(PTX)
    outcome = tessc("analyze", str(path), "-o", str(tmp_path / "missing" / "report.txt"))
    assert outcome.code == 1
    assert "error[TSR1911]: cannot write" in outcome.err


def test_internal_error(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_bytes(PTX)
    with mock.patch("tessera.driver.analyze.analyze", side_effect=KeyError("%r7")):
        outcome = tessc("analyze", str(path))
    assert outcome.code == 70
    assert "error[TSR9000]: internal error: KeyError: '%r7'" in outcome.err
    assert f"command: `tessc analyze {path}`" in outcome.err
    assert "Traceback" not in outcome.err
