"""What library calls touch when they run lies inside what the analysis says."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.access import AccessKind, AddressClass, Certainty
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.access_regions import AccessRegions

HEAD = """//! tessera.trace 1
//! buffer x bytes=4096 role=input dtype=f32 shape=1024
//! buffer i bytes=64 role=input dtype=s64 shape=8
//! buffer s bytes=4096 role=state dtype=f32 shape=1024
//! buffer y bytes=4096 role=output dtype=f32 shape=1024
"""
RECORDS = [
    "aten::mm reads=[x:f32[4,8]{16,1}, x+1024:f32[8,2]{1,8}] writes=[y:f32[4,2]{4,1}]",
    "aten::embedding reads=[x:f32[16,8], i:s64[3]] writes=[y+128:f32[3,8]]",
    "aten::index_put_ reads=[s:f32[16,8], i:s64[3], x:f32[3,8]] writes=[s:f32[16,8]]",
    'aten::gather reads=[x:f32[16,2], i:s64[2,2]] writes=[y:f32[2,2]] attrs={"dim":0}',
    "aten::copy_ reads=[s:f32[8], x+64:f32[8]] writes=[s:f32[8]]",
    "aten::scatter_add_ reads=[s:f32[16,2], i:s64[2,2], x:f32[2,2]] writes=[s:f32[16,2]] "
    'attrs={"dim":0}',
    'aten::sum.dim_IntList reads=[x:f32[4,3,2]{64,4,1}] writes=[y:f32[4]] attrs={"dim":[1,2]}',
]


def analysed(record: str):
    program = parse_trace(HEAD + f"//! op {record}\n")
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    return program, step.accesses


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.split()[0])
def test_what_runs_lies_inside_the_regions(record: str) -> None:
    program, accesses = analysed(record)
    contents = {
        "x": np.arange(1024, dtype=np.float32),
        "s": np.ones(1024, np.float32),
        "i": np.array([5, 1, 15, 0, 2, 3, 4, 6]),
    }
    result = run_program(program, contents)
    (record_,) = result.launches
    for touched in record_.result.accesses:
        for kind, ranges in ((AccessKind.READ, touched.reads), (AccessKind.WRITE, touched.writes)):
            allowed = np.zeros(4096, np.bool_)
            for access in accesses:
                if program.buffers[access.buffer].name == touched.buffer and access.kind is kind:
                    for start, end in region_bytes(access.region, 4096):
                        allowed[start:end] = True
            for start, end in ranges:
                assert allowed[start:end].all()


def test_a_scatter_may_write_anywhere_and_must_write_nothing() -> None:
    _, accesses = analysed(RECORDS[2])
    (write,) = [access for access in accesses if access.kind is AccessKind.WRITE]
    assert write.certainty is Certainty.MAY
    assert write.address is AddressClass.INDEXED


def test_a_copy_does_not_read_what_it_overwrites() -> None:
    program, accesses = analysed(RECORDS[4])
    read = [program.buffers[a.buffer].name for a in accesses if a.kind is AccessKind.READ]
    assert read == ["x"]
    (write,) = [access for access in accesses if access.kind is AccessKind.WRITE]
    assert write.certainty is Certainty.MUST
