"""Faults of kernels that run on the CPU backend: each has its code, and the place in the PTX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.trace.read_trace import parse_trace

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
DECLARED = ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>; ld.param.u64 %rd1, [x];\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel `k(x)` that is given a buffer of 64 bytes, and the finding that is expected."""

    code: str
    words: str
    body: str = ""
    before: str = ""
    header: str = HEADER
    launch: dict[str, Any] | None = None
    name: str = "k"
    directives: str = ""
    arguments: Callable[[Device], list[Any]] | None = None


def other_device(_device: Device) -> list[Any]:
    return [Device(1).array(np.zeros(16, np.float32))]


CASES = [
    Case(code="TSR5001", words="cannot run `_fnord.b32`", body="_fnord.b32 %r1, %r2;"),
    Case(code="TSR5002", words="outside every allocation", body="ld.global.b32 %r1, [%rd1+4096];"),
    Case(code="TSR5003", words="misaligned access", body="ld.global.b64 %rd2, [%rd1+4];"),
    Case(
        code="TSR5002",
        words="address of another device",
        body="ld.global.b32 %r1, [%rd1];",
        arguments=other_device,
    ),
    Case(
        code="TSR5002",
        words="outside shared memory",
        body=".shared .b8 s[16]; st.shared.b32 [s+1024], %r1;",
    ),
    Case(code="TSR5007", words="takes 1 arguments: 0 given", arguments=lambda _: []),
    Case(code="TSR5007", words="of kernel `k` does not fit", arguments=lambda _: [b"x"]),
    Case(code="TSR5008", words="more than 1024 threads", launch={"block": (1024, 2)}),
    Case(code="TSR5008", words="must be", directives=".reqntid 64", launch={"block": 32}),
    Case(code="TSR5008", words="bytes of shared memory", launch={"shared": 1 << 20}),
    Case(code="TSR5010", words="did not end", body="L: bra L;", launch={"max_steps": 1000}),
    Case(
        code="TSR5010",
        words="every remaining thread waits",
        body="mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 barrier.sync 1, 64;",
    ),
    Case(code="TSR5012", words="trap", body="trap;"),
    Case(
        code="TSR5012",
        words="assertion failed: i < n",
        before=".global .b8 text[6] = {105, 32, 60, 32, 110, 0};\n"
        ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 g,"
        " .param .b64 s);\n",
        body="mov.u64 %rd2, text; cvta.global.u64 %rd2, %rd2; mov.u64 %rd3, 1;\n"
        "{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 g; .param .b64 s;\n"
        "st.param.b64 [m], %rd2; st.param.b64 [f], %rd2; st.param.b32 [l], 7;\n"
        "st.param.b64 [g], %rd2; st.param.b64 [s], %rd3;\n"
        "call.uni __assertfail, (m, f, l, g, s); }",
    ),
    Case(code="TSR5014", words="no kernel `other`", name="other"),
    Case(
        code="TSR5017",
        words="write to",
        before=".const .b32 c;\n",
        body="mov.u64 %rd2, c; cvta.const.u64 %rd2, %rd2; st.b32 [%rd2], %r1;",
    ),
    Case(
        code="TSR5018",
        words="defined nowhere",
        before=".extern .global .b32 far[];\n",
        body="mov.u64 %rd2, far; ld.global.b32 %r1, [%rd2];",
    ),
    Case(
        code="TSR5001",
        words="64-bit addresses only",
        header=".version 4.0\n.target sm_20\n.address_size 32\n",
    ),
    Case(
        code="TSR5023",
        words="is no function",
        body="mov.u64 %rd2, 0; P: .callprototype _ (); call %rd2, (), P;",
    ),
    Case(
        code="TSR5023",
        words="table branch with index 5",
        body="mov.u32 %r1, 5; T: .branchtargets A; brx.idx %r1, T; A:",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code} {case.words}")
def test_fault(case: Case) -> None:
    text = (
        f"{case.header}{case.before}.visible .entry k(.param .u64 x) {case.directives}\n"
        f"{{\n{DECLARED}{case.body}\nret;\n}}\n"
    )
    options: dict[str, Any] = {"grid": 1, "block": 32, **(case.launch or {})}
    with Device() as device:
        buffer = device.array(np.zeros(16, np.float32), "x")
        arguments = case.arguments(device) if case.arguments else [buffer]
        with pytest.raises(TesseraError) as failure:
            device.load(parse_module(text))[case.name].launch(args=arguments, **options)
    (found,) = failure.value.diagnostics
    assert found.code == case.code
    assert case.words in f"{found.headline} {' '.join(found.notes)}"


def test_out_of_memory() -> None:
    with pytest.raises(TesseraError, match="TSR5020"), Device(memory_bytes=1 << 20) as device:
        device.empty(1 << 21, name="w")


def test_library_call() -> None:
    program = parse_trace(
        "//! tessera.trace 1\n"
        "//! buffer x bytes=64 role=input dtype=c64 shape=8\n"
        "//! buffer y bytes=64 role=output dtype=c64 shape=8\n"
        "//! op aten::mul.out reads=[x:c64[8], x:c64[8]] writes=[y:c64[8]] attrs={}\n"
    )
    with pytest.raises(TesseraError, match="TSR5001") as failure:
        run_program(program, {})
    assert str(failure.value).startswith("<trace>:4:")
