"""Tensor maps against what the CUDA driver encodes."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tessera.ir.program.tensor_map import BadTensorMap, decode, encode_tiled, replace_field

DATA = Path(__file__).resolve().parents[2] / "data" / "cpu" / "tensor_maps.json"
MAPS = json.loads(DATA.read_text())["maps"]


@pytest.mark.parametrize("row", MAPS)
def test_encode_as_the_driver_does(row: list):
    kind, address, dims, strides, box, steps, interleave, swizzle, l2, fill, text = row
    mine = encode_tiled(
        data_type=kind,
        address=address,
        dims=dims,
        strides=strides,
        box=box,
        element_strides=steps,
        interleave=interleave,
        swizzle=swizzle,
        l2_promotion=l2,
        fill_nan=bool(fill),
    )
    assert mine == bytes.fromhex(text.ljust(256, "0"))


@pytest.mark.parametrize("row", MAPS)
def test_decode_what_the_driver_encodes(row: list):
    _, address, dims, strides, box, steps, interleave, swizzle, _, fill, text = row
    found = decode(bytes.fromhex(text.ljust(256, "0")))
    assert found.address == address
    assert list(found.dims) == dims
    assert list(found.strides) == strides
    assert list(found.box) == box
    assert list(found.element_strides) == steps
    assert (found.interleave, found.swizzle, found.fill_nan) == (interleave, swizzle, bool(fill))


def test_replace_every_field():
    content = encode_tiled(data_type=7, address=4096, dims=(8, 8), strides=(64,), box=(4, 4))
    changes = [
        ("global_address", 0, 1 << 44),
        ("rank", 0, 2),
        ("elemtype", 0, 10),
        ("swizzle_mode", 0, 3),
        ("fill_mode", 0, 1),
        ("global_dim", 2, 77),
        ("global_stride", 1, (1 << 38) + 16),
        ("element_stride", 1, 2),
        ("box_dim", 0, 64),
        ("box_dim", 2, 3),
    ]
    for field, ordinal, value in changes:
        content = replace_field(content, field, ordinal, value)
    found = decode(content)
    assert found.address == 1 << 44
    assert found.element_bytes == 2
    assert found.dims == (8, 8, 77)
    assert found.strides == (64, (1 << 38) + 16)
    assert found.element_strides == (1, 2, 1)
    assert found.box == (64, 4, 3)
    assert (found.swizzle, found.fill_nan) == (3, True)


def test_poison_is_no_map():
    with pytest.raises(BadTensorMap):
        decode(b"\xcb" * 128)


def test_bits_of_maps_that_cute_dsl_encodes():
    words = [0x12340000, 0, 0x40312, 5, 0, 0, 0, 0, 39, 19, 0, 0, 0, 0x1F000000, 7, 0, 0x7FFE] + [
        0
    ] * 15
    tiled = decode(struct.pack("<32I", *words))
    assert (tiled.address, tiled.dims, tiled.box) == (0x12340000, (40, 20), (32, 8))
    assert (tiled.strides, tiled.element_bytes) == ((80,), 2)
    for bits in (1, 3, 6):  # of im2col maps, and none that is known
        words[2] = 0x40310 | bits
        with pytest.raises(BadTensorMap):
            decode(struct.pack("<32I", *words))
