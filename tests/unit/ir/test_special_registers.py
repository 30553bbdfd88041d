"""Special registers and the widths of types."""

from __future__ import annotations

import pytest

from tessera.ir.opcodes import (
    SPECIAL_REGISTERS,
    Varies,
    special_register,
    state_space,
    type_bits,
    type_width,
)


@pytest.mark.parametrize(
    ("name", "type_name", "varies", "components", "is_volatile"),
    [
        ("%tid", "u32", Varies.LANE, "xyzw", False),
        ("%ctaid", "u32", Varies.CTA, "xyzw", False),
        ("%ntid", "u32", Varies.LAUNCH, "xyzw", False),
        ("%clusterid", "u32", Varies.CLUSTER, "xyzw", False),
        ("%is_explicit_cluster", "pred", Varies.LAUNCH, "", False),
        ("%clock64", "u64", Varies.MACHINE, "", True),
        ("%smid", "u32", Varies.MACHINE, "", True),
        ("%pm7_64", "u64", Varies.MACHINE, "", True),
        ("%envreg31", "b32", Varies.LAUNCH, "", False),
        ("%lanemask_lt", "u32", Varies.LANE, "", False),
        ("%reserved_smem_offset_1", "b32", Varies.LAUNCH, "", False),
        ("WARP_SZ", "u32", Varies.CONSTANT, "", False),
    ],
)
def test_special_register(
    name: str, type_name: str, varies: Varies, components: str, is_volatile: bool
):
    register = special_register(name)
    assert register is not None
    assert register.name == name
    assert register.type == type_name
    assert register.varies is varies
    assert register.components == components
    assert register.is_volatile is is_volatile


def test_what_is_no_special_register():
    for name in ("%r1", "%tid.x", "%envreg32", "%pm8", "tid", ""):
        assert special_register(name) is None


def test_every_special_register_has_a_type():
    for register in SPECIAL_REGISTERS.values():
        assert type_bits(register.type) in {1, 32, 64}


def test_type_widths():
    assert type_width("f64") == type_width(".f64") == 8
    assert type_width("b128") == 16
    assert type_width("f16x2") == 4
    assert type_width("e2m1x2") == 1
    assert type_bits("u4") == 4
    assert type_width("u4") == 1
    with pytest.raises(KeyError):
        type_width("f33")


def test_state_space():
    assert state_space("shared::cluster") == "shared::cluster"
    assert state_space("const[2]") == "const"
    assert state_space("f32") is None
