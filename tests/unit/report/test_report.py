"""The report of a trace, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import tessc

KERNEL = """.version 8.0
.target {arch}
.address_size 64
.global .align 4 .u32 hits = 7;
.extern .shared .align 16 .b8 pool[];
.visible .entry fill(.param .u64 .ptr .global .align 4 y, .param .u32 n)
.maxntid 256, 1, 1
{{
    .reg .b32 %r;
    mov.u32 %r, pool;
    ret;
}}
"""
TRACE = (
    "//! tessera.trace 1\n"
    "//! buffer x bytes=64 role=input dtype=f32 shape=4x4\n"
    "//! buffer y bytes=1024 role=temp\n"
    "//! buffer z bytes=1 role=temp\n"
    "//! resident data=t.npz\n"
    "//! module m0\n"
    + KERNEL.format(arch="sm_80")
    + "//! module m0\n"
    + KERNEL.format(arch="sm_90a")
    + "//! module m1\n"
    + KERNEL.format(arch="sm_80")
    + "//! launch m0.fill grid=4,1,1 block=256,1,1 smem=128 args=[y, u32:1024]\n"
    "//! launch m0.fill grid=2,1,1 block=256,1,1 smem=128 args=[y+512, u32:512]\n"
    "//! launch m1.fill grid=1,1,1 block=32,1,1 args=[y, u32:1] stream=s\n"
    "//! memset y+0 bytes=1024 value=0x00\n"
    "//! memcpy y+0 x+0 bytes=64\n"
)


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`analyze` writes the graph of a trace to the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "t.ptx"
    file.write_text(TRACE)
    return str(file)


def test_text(path: str) -> None:
    outcome = tessc("analyze", path, "-k", "fill")
    assert (outcome.code, outcome.err) == (0, "")
    blocks = outcome.text.split("\n\n")
    assert blocks[0] == (
        f"trace {path}\n"
        "  buffers         1 input (64 bytes), 2 temp (1025 bytes)\n"
        "  contents        t.npz\n"
        "  steps           3 launches, 1 memset, 1 memcpy on 2 streams\n"
        "  modules         m0 (sm_80, sm_90a); m1 (sm_80)"
    )
    assert blocks[1] == (
        "launches\n"
        "       2 x m0.fill: grid varies, block 256x1x1, dynamic shared 128 bytes\n"
        "       1 x m1.fill: grid 1x1x1, block 32x1x1"
    )
    assert blocks[2] == (
        "module m0 (sm_80): PTX 8.0, target sm_80, 64-bit addresses\n"
        "  variable        global u32 hits: 4 bytes, align 4, initialised\n"
        "  variable        extern shared b8 pool: size open, align 16"
    )
    assert blocks[3] == (
        "kernel fill (line 12)\n"
        "  parameters      y  u64, 8 bytes, pointer to global, align 4\n"
        "                  n  u32, 4 bytes\n"
        "  directives      maxntid 256, 1, 1\n"
        "  registers       b32 1\n"
        "  shared memory   dynamic (the launch gives the size)\n"
        "  instructions    2: control 1, move 1"
    )
    assert len(blocks) == 8 + 3  # one more for the accesses of each kernel
    assert blocks[8] == "accesses of fill (sm_80)\n  none"


def test_json(path: str) -> None:
    value = json.loads(tessc("analyze", path, "--json").out)
    assert value["file"] == path
    assert value["trace"] == {
        "resident": "t.npz",
        "streams": 2,
        "memsets": 1,
        "memcpys": 1,
        "library_calls": 0,
        "buffers": [
            {"name": "x", "bytes": 64, "role": "input", "dtype": "f32", "shape": [4, 4]},
            {"name": "y", "bytes": 1024, "role": "temp", "dtype": None, "shape": None},
            {"name": "z", "bytes": 1, "role": "temp", "dtype": None, "shape": None},
        ],
        "launches": [
            {
                "module": "m0",
                "kernel": "fill",
                "launches": 2,
                "grid": None,
                "block": [256, 1, 1],
                "dynamic_shared_bytes": 128,
            },
            {
                "module": "m1",
                "kernel": "fill",
                "launches": 1,
                "grid": [1, 1, 1],
                "block": [32, 1, 1],
                "dynamic_shared_bytes": 0,
            },
        ],
    }
    assert [(m["name"], m["arch"]) for m in value["modules"]] == [
        ("m0", "sm_80"),
        ("m0", "sm_90a"),
        ("m1", "sm_80"),
    ]
    assert value["modules"][0]["variables"][0] == {
        "name": "hits",
        "space": "global",
        "type": "u32",
        "bytes": 4,
        "align": 4,
        "linkage": None,
        "initialized": True,
    }


def test_every_key_is_documented(path: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "json.md").read_text("utf-8")
    counted = {"registers", "mix", "calls"}

    def check(value: object) -> None:
        if isinstance(value, list):
            for element in value:
                check(element)
        if isinstance(value, dict):
            for key, inner in value.items():
                assert f"`{key}`" in text, key
                if key not in counted:
                    check(inner)

    check(json.loads(tessc("analyze", path, "--json").out))


def test_emit_ptx_of_a_trace_reads_back_as_its_modules(path: str) -> None:
    emitted = tessc("analyze", path, "--emit", "ptx")
    assert emitted.code == 0
    assert emitted.text.count("//! module ") == 3
    again = tessc("analyze", "-", "--json", stdin=emitted.out)
    assert again.code == 0
    first = json.loads(tessc("analyze", path, "--json").out)["modules"]
    second = json.loads(again.out)["modules"]
    for module in (*first, *second):
        for function in module["kernels"]:
            del function["line"]
    assert first == second


def test_emit_ptx_of_an_emitted_trace_is_stable(path: str) -> None:
    once = tessc("analyze", path, "--emit", "ptx").out
    twice = tessc("analyze", "-", "--emit", "ptx", stdin=once).out
    assert once == twice
