"""Quantized weights: what config files say, the tensors of checkpoints, and the products."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from tessera.driver.trace.quantize import quantize
from tessera.frontend.capture.meta.quantized import general_name, read_quantization
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.operators.cut_rules import dims_of
from tessera.ir.operators.table import bind, work_of
from tessera.ir.program import program as ir
from tessera.ir.program.print_trace import print_program
from tests.unit.driver.trace.test_patterns import operators, program_of

LAYER = """tessera::merged_linear reads=[x:bf16[8,512], a.q.weight:bf16[512,256]{1,512}, \
a.k.weight:bf16[512,128]{1,512}] writes=[q:bf16[8,256], k:bf16[8,128]]
aten::addmm reads=[b:bf16[512], q:bf16[8,256], a.o.weight:bf16[256,512]{1,256}] \
writes=[y:bf16[8,512]]
aten::mm reads=[y:bf16[8,512], lm_head.weight:bf16[512,1024]{1,512}] writes=[z:bf16[8,1024]]"""
COVERED = {"a.q.weight": (512, 256), "a.k.weight": (512, 128), "a.o.weight": (256, 512)}
GROUP = {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}, "input_activations": {}}
# What a checkpoint has for a weight of `k` inputs and `n` results, in bytes.
METHODS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "blocks": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        lambda k, n: k * n + 4 * -(-k // 128) * -(-n // 128),
        "e4m3",
    ),
    "tensor": ({"quant_method": "fp8", "weight_block_size": None}, lambda k, n: k * n + 4, "e4m3"),
    "int8": (
        {"quant_method": "compressed-tensors",
         "config_groups": {"g": GROUP | {"input_activations": {"num_bits": 8}}}},
        lambda k, n: k * n + 2 * n,
        "s8",
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 64},
        lambda k, n: k * n // 2 + k // 64 * n * 2 + k // 64 * n // 2,
        "bf16",
    ),
    "gptq of 8 bits": (
        {"quant_method": "gptq", "bits": 8, "group_size": -1},
        lambda k, n: k * n + 2 * n + n,
        "bf16",
    ),
    "nvfp4": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        lambda k, n: k * n // 2 + k // 16 * n,
        "bf16",
    ),
}  # fmt: skip


def layer(records: str = LAYER) -> ir.Program:
    """The records, with the names of weights in the place of short ones."""
    short = {name: f"w{number}" for number, name in enumerate((*COVERED, "lm_head.weight"))}
    for name, own in short.items():
        records = records.replace(f"{name}:", f"{own}:")
    weights = dict.fromkeys(short.values(), "weight")
    text = print_program(program_of(records, **weights))
    for name, own in short.items():
        text = text.replace(f"buffer {own} ", f"buffer {name} ").replace(f"{own}:", f"{name}:")
    return parse_trace(text)


@pytest.mark.parametrize("method", METHODS)
def test_weights_have_the_bytes_of_the_checkpoint(method: str) -> None:
    values, size, arithmetic = METHODS[method]
    how = read_quantization(values)
    assert how is not None
    program = quantize(layer(), how, lambda name: name.endswith(".weight"))
    by_name: dict[str, int] = {}
    for buffer in program.buffers:
        own = buffer.name.partition("_scale")[0].partition("_zeros")[0]
        by_name[own] = by_name.get(own, 0) + buffer.bytes
    for name, (k, n) in COVERED.items():
        assert by_name[name] == size(k, n)
    assert by_name["lm_head.weight"] == 2 * 512 * 1024  # the head keeps its type
    linear = "tessera::quantized_linear"
    assert operators(program) == [linear, linear, "aten::mm"]
    before = layer().steps
    for step, old in zip(program.steps, before, strict=True):
        assert isinstance(step, ir.LibraryCall)
        assert isinstance(old, ir.LibraryCall)
        assert work_of(step) == work_of(old)
        assert dict(step.attributes).get("arithmetic", arithmetic) == arithmetic
        dims = dims_of(bind(step))
        for operand, names in zip(step.reads, dims.reads, strict=True):
            assert len(names) == len(operand.shape)
        assert prod(step.writes[0].shape) == prod(old.writes[0].shape)
    assert parse_trace(print_program(program)) == program


def test_exempt_layers_and_shared_weights_keep_their_type() -> None:
    how = read_quantization({"quant_method": "fp8", "modules_to_not_convert": ["a.*", "re:none"]})
    assert how is not None
    assert quantize(layer(), how, lambda name: True) == layer()
    how = read_quantization({"quant_method": "fp8", "ignored_layers": ["o"]})
    assert how is not None
    assert operators(quantize(layer(), how, lambda name: True))[1] == "aten::addmm"
    how = read_quantization({"quant_method": "fp8"})
    assert how is not None
    also = LAYER + "\naten::clone reads=[a.o.weight:bf16[512,256]] writes=[c:bf16[512,256]]"
    assert operators(quantize(layer(also), how, lambda name: True))[1] == "aten::addmm"


def test_methods_that_are_not_known() -> None:
    other = GROUP | {"weights": {"num_bits": 4}}
    for values in (
        {"quant_method": "mine"},
        {},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "compressed-tensors", "config_groups": {"a": GROUP, "b": other}},
        {"quant_method": "modelopt", "quant_algo": "W4A8"},
    ):
        assert read_quantization(values) is None
    assert general_name("model.layers.11.mlp.experts.0.up") == "model.layers.*.mlp.experts.*.up"


EXPERTS = """tessera::experts reads=[x:bf16[8,64], \
w0:bf16[4,64,256], w1:bf16[4,128,64]{8192,1,128}] \
writes=[y:bf16[8,64]] attrs={"tokens":8,"hidden":64,"inner":128,"chosen":2,"experts":4}"""


def test_experts_of_four_bits_are_read_two_to_a_byte() -> None:
    how = read_quantization({"quant_method": "mxfp4"})
    assert how is not None
    program = quantize(program_of(EXPERTS, w0="weight", w1="weight"), how, lambda name: True)
    weights = [b.bytes for b in program.buffers if b.role is ir.Role.WEIGHT]
    each = 4 * 64 * 256 // 2
    assert sorted(weights) == sorted([each, each // 2, each // 16, each // 32])
    (step,) = program.steps
    assert isinstance(step, ir.LibraryCall)
    assert step.operator == "tessera::experts"
    assert [o.shape for o in step.reads[1:3]] == [(4, 64, 128), (4, 2, 256)]
    assert bind(step)
