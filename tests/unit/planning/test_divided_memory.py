"""Divided steps: a device holds, and reads, only the bytes of weights that its parts touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.processes.device_group import part_of
from tessera.backend.processes.inline import InlineBackend
from tessera.backend.processes.reference import Reference
from tessera.backend.processes.workers import CpuBackend
from tessera.backend.service import BackendOptions, Bytes, Model, Request
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.division import Cut, Division, parts_of
from tessera.ir.plan.launch_program import AreaKind, LoweredReplica
from tessera.ir.program.program import Program, Role
from tessera.passes.base import AnalysisManager
from tessera.passes.checker.check_plan import check_replica
from tessera.passes.division.divide import divide
from tessera.passes.division.legal_cuts import LegalCuts
from tessera.passes.division.part_kernels import with_part_kernels
from tests.helpers.corpus import ROOT
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import contents, graph_of, model_of, served

PRODUCT = """//! tessera.trace 1
//! buffer x bytes=1024 role=input dtype=f32 shape=1x256
//! buffer w bytes=524288 role=weight dtype=f32 shape=512x256
//! buffer y bytes=2048 role=output dtype=f32 shape=1x512
//! op aten::mm.out reads=[x:f32[1,256], w:f32[256,512]{1,256}] writes=[y:f32[1,512]]
"""


def halves(program: Program) -> Division:
    """Every step that can be cut, at about the middle of its longest axis."""
    cuts = []
    for step in AnalysisManager(program).get(LegalCuts).steps:
        axis = max(step.axes, key=lambda axis: axis.extent // axis.multiple, default=None)
        if axis is not None:
            middle = axis.extent // axis.multiple // 2 * axis.multiple
            if middle:
                edges = (0, middle, axis.extent)
                cuts.append(Cut(step=int(step.step), axis=axis.axis, edges=edges))
    return Division(cuts=tuple(cuts))


def divided(program: Program, division: Division) -> tuple[Model, tuple[str, ...]]:
    """The divided program, part i on device i; proved."""
    made = divide(program, division)
    steps = parts_of(len(tuple(program.work())), division)
    placement = tuple("ab"[part.index] for part in steps)
    graph = graph_of(made)
    model = model_of([made], [placement], slots=1, graphs=[graph])
    assert check_replica(model.lowered, [made], [graph], [placement]) == ()
    return replace(model, traces=(served(with_part_kernels(made)),)), placement


def weight_bytes(lowered: LoweredReplica) -> int:
    return sum(area.bytes for area in lowered.areas if area.kind is AreaKind.WEIGHTS)


def assert_equal(model: Model, program: Program, inputs: Mapping[str, Bytes]) -> None:
    """One request in parts gives what the trace gives on one device."""
    whole = (served(program),)
    wanted = Reference(whole, model.weights, model.states, model.fillings)
    expected = wanted.run(inputs, trace=0, lane=0)
    for backend in (InlineBackend(model), CpuBackend(model)):
        try:
            backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs=inputs))
            done = ()
            while not done:
                done = backend.collect(0.1)
            for name, content in expected.outputs.items():
                np.testing.assert_array_equal(done[0].outputs[name], content, name)
            for name, content in backend.read_states(0).items():
                np.testing.assert_array_equal(content, expected.states[name], name)
        finally:
            backend.close()


@pytest.fixture(scope="module")
def product() -> tuple[Model, tuple[str, ...], Program]:
    program = parse_trace(PRODUCT, "product.ptx")
    cut = Cut(step=0, axis="columns", edges=(0, 192, 512))
    return *divided(program, Division(cuts=(cut,))), program


def test_a_weight_that_fits_on_neither_device(
    product: tuple[Model, tuple[str, ...], Program],
) -> None:
    model, placement, program = product
    made, room = model.traces[0].program, {"a": 210_000, "b": 340_000}
    graph = graph_of(made)
    assert not check_replica(model.lowered, [made], [graph], [placement], capacities=room)
    alone = model_of([made], [("b", "b")], slots=1, graphs=[graph])
    (said,) = check_replica(alone.lowered, [made], [graph], [("b", "b")], capacities=room)
    assert said.code == "TSR4009"
    held = {place.device: (place.first, place.end) for place in model.lowered.places if place.first}
    assert held == {"b": (192 * 1024, None)}
    assert_equal(model, program, contents(program, Role.INPUT, 1))


def test_every_byte_is_read_once(product: tuple[Model, tuple[str, ...], Program]) -> None:
    model, *_ = product
    pieces = [part_of(model, device) for device in "ab"]
    assert [piece.weights["w"].nbytes for piece in pieces] == [192 * 1024, 320 * 1024]
    assert [dict(piece.firsts) for piece in pieces] == [{}, {"w": 192 * 1024}]
    joined = np.concatenate([piece.weights["w"] for piece in pieces])
    np.testing.assert_array_equal(joined, model.weights["w"])


class _Counting(FakeCuda):
    """A stand-in that counts the bytes that the host uploads."""

    uploaded = 0

    def cuMemcpyHtoD(self, target: int, source: object, size: int) -> object:
        self.uploaded += size
        return super().cuMemcpyHtoD(target, source, size)


def test_every_byte_goes_to_one_gpu(tmp_path: Path) -> None:
    """Copies of halves of a weight, on two GPUs: each gets its half, from a mapped file."""
    text = """//! tessera.trace 1
//! buffer w bytes=524288 role=weight dtype=f32 shape=131072
//! buffer y bytes=524288 role=output dtype=f32 shape=131072
//! memcpy y w bytes=524288
"""
    program = parse_trace(text, "copy.ptx")
    cut = Cut(step=0, axis="bytes", edges=(0, 65536, 524288))
    model, _ = divided(program, Division(cuts=(cut,)))
    model.weights["w"].tofile(tmp_path / "w.bin")
    model = replace(model, weights={"w": np.memmap(tmp_path / "w.bin", np.uint8, "r")})
    fake = _Counting(gpus=2)
    targets = {"a": "cuda:0", "b": "cuda:1"}
    backend = CudaBackend(model, BackendOptions(targets=targets), driver=Driver(fake))
    try:
        assert fake.uploaded == 524288
        backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs={}))
        (done,) = backend.collect(60.0)
        np.testing.assert_array_equal(done.outputs["y"], model.weights["w"])
    finally:
        backend.close()


@pytest.mark.slow
def test_a_small_llama_in_halves() -> None:
    """The weights on both devices take at most 1.1 times the model."""
    folder = ROOT / "examples" / "traces"
    path = folder / "llama_decode_library.ptx"
    program = parse_trace(path.read_text(), path.name)
    data = {n: c.reshape(-1).view(np.uint8) for n, c in np.load(path.with_suffix(".npz")).items()}
    model, _ = divided(program, halves(program))
    named = {role: [b.name for b in program.buffers if b.role is role] for role in Role}
    model = replace(
        model,
        weights={name: data[name] for name in named[Role.WEIGHT]},
        states=[{name: data[name] for name in named[Role.STATE]}],
    )
    total = sum(model.weights[name].nbytes for name in named[Role.WEIGHT])
    assert weight_bytes(model.lowered) <= 1.1 * total
    assert_equal(model, program, {name: data[name] for name in named[Role.INPUT]})
