"""Matrix loads with rows a stride apart: the regions are the bytes that the CPU backend reads."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.access_oracle import compare
from tests.helpers.share import share
from tests.helpers.traces import trace

# Shape and type, what the part holds, and registers of the fragment.
FORMS = {
    "a.sync.aligned.row.m8n8k32": ("s4", 1),
    "b.sync.aligned.col.m8n8k32": ("u4", 1),
    "a.sync.aligned.row.m8n8k128": ("b1", 1),
    "b.sync.aligned.col.m8n8k128": ("b1", 1),
    "a.sync.aligned.row.m16n16k16": ("s8", 2),
    "b.sync.aligned.row.m16n16k16": ("f16", 8),
    "a.sync.aligned.col.m16n16k8": ("tf32", 4),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stride", [128, 256, None])
def test_regions_are_what_is_read(form: str, stride: int | None) -> None:
    check(form, stride, 64)


def test_any_stride_and_place() -> None:
    """Strides and places as the ISA allows them: multiples of 16 bytes, or of 32 elements."""
    chosen = random.Random(44)
    for _ in share(range(60)):
        form = chosen.choice(list(FORMS))
        unit = {"4": 32, "1": 128}.get(FORMS[form][0][1:], 16)
        check(form, unit * chosen.randint(1, 12), 32 * chosen.randint(0, 20))


def check(form: str, stride: int | None, start: int) -> None:
    kind, count = FORMS[form]
    registers = ", ".join(f"%r{i}" for i in range(count))
    tail = "" if stride is None else ", %r9"
    code = f"""
    .visible .entry k(.param .u64 x, .param .u32 stride) {{
        .reg .b32 %r<10>;
        .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [x];
        ld.param.u32 %r9, [stride];
        wmma.load.{form}.global.{kind} {{{registers}}}, [%rd1+{start}]{tail};
        ret;
    }}
"""
    buffers = "buffer x bytes=32768 role=input"
    steps = f"launch m.k grid=1,1,1 block=32,1,1 smem=0 args=[x, u32:{stride or 0}]"
    program = trace(buffers, code, steps)
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    (record,) = run_program(program, {"x": np.zeros(32768, np.uint8)}).launches
    (entry,) = compare(program, step, record.result.accesses)
    assert not step.pins
    assert intervals.pairs(entry.may_read) == intervals.pairs(entry.read)
    assert intervals.size(entry.read) >= 128
