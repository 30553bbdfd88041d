"""NumPy arrays passed straight to a launch."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.cpu_kernels import HEADER

ADD = f"""{HEADER}
.visible .entry add(.param .u64 y, .param .u64 x, .param .align 8 .b8 by[8])
{{
    .reg .b32 %r<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x]; ld.param.u32 %r3, [by+4];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd1, %r1, 4, %rd1; mad.wide.u32 %rd2, %r1, 4, %rd2;
    ld.global.u32 %r2, [%rd2]; add.u32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;
    ret;
}}
"""
BY = np.array([0, 5], np.uint32)


def launch(device: Device, y, x):
    return device.load(parse_module(ADD))["add"].launch(1, 16, [y, x, BY])


def test_arrays_go_there_and_back():
    device = Device()
    y, x = np.zeros((4, 4), np.uint32), np.arange(16, dtype=np.uint32)
    before = len(device.space.table)
    result = launch(device, y, x)
    assert (y.reshape(-1) == np.arange(16) + 5).all()
    assert (x == np.arange(16)).all()
    assert [access.buffer for access in result.accesses] == ["y", "x"]
    assert len(device.space.table) == before


def test_one_array_twice_is_one_buffer():
    x = np.arange(32, dtype=np.uint32)[::2]
    launch(Device(), x, x)
    assert (x == np.arange(0, 32, 2) + 5).all()


def test_arrays_may_be_read_only_if_they_are_only_read():
    fixed = np.arange(16, dtype=np.uint32)
    fixed.flags.writeable = False
    launch(Device(), np.zeros(16, np.uint32), fixed)
    with pytest.raises(TesseraError) as failure:
        launch(Device(), fixed, fixed)
    assert failure.value.diagnostics[0].code == "TSR5007"


def test_the_copies_are_freed_after_a_fault():
    device = Device()
    with pytest.raises(TesseraError) as failure:
        launch(device, np.zeros(15, np.uint32), np.zeros(16, np.uint32))
    assert failure.value.diagnostics[0].code == "TSR5002"
    assert not device.space.table
