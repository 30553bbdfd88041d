"""Layers: stretches of steps that repeat are found, the widest first, and nothing else is."""

from __future__ import annotations

import pytest

from tessera.ir.graph.layers import Layer, find_layers, kernel_family


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ("", ()),
        ("abcdef", ()),
        ("abab", ()),  # hides two steps only
        ("aaaa", (Layer(0, 1, 4),)),
        ("xabcabcaby", (Layer(1, 3, 2),)),
        ("eabcabcabch", (Layer(1, 3, 3),)),
        ("aababbaababb", (Layer(0, 6, 2),)),  # no letter comes again after a period
        ("aaaaxbcbcbcbc", (Layer(0, 1, 4), Layer(5, 2, 4))),
    ],
)
def test_layers(keys: str, layers: tuple[Layer, ...]) -> None:
    assert find_layers(keys) == layers


def test_ten_thousand_steps() -> None:
    keys = ["embed", *[f"k{n % 12}" for n in range(12)] * 833, "head"]
    assert find_layers(keys) == (Layer(1, 12, 833),)


def test_steps_stand_for_each_other() -> None:
    layer = Layer(1, 3, 3)
    assert [layer.shown(step) for step in range(1, layer.end)] == [1, 2, 3] * 3


def test_families() -> None:
    assert kernel_family("m13.triton_poi_fused_add_13") == "triton_poi_fused_add"
    assert kernel_family("m.gemm_64x64") == "gemm_64x"
    assert kernel_family("memset") == "memset"
    assert kernel_family("m._12") == "_12"
