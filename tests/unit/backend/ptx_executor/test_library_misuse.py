"""What people pass by mistake to the library, and launches from several Python threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.watch import Checks
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.cpu_kernels import HEADER, load, run

STORE = "st.global.u32 [%rd2], %r3;"


def code_of(action) -> str:
    with pytest.raises(TesseraError) as failure:
        action()
    return failure.value.diagnostics[0].code


def test_sizes_may_be_numpy_integers():
    out, _ = run(STORE, grid=np.int64(2), block=(np.int32(8), np.uint8(4)), count=64)
    assert (out[:16] == np.arange(16)).all()


@pytest.mark.parametrize("size", [1.5, None, "a", "12", (1, 2.0), [None]])
def test_sizes_must_be_whole_numbers(size):
    assert code_of(lambda: run(STORE, grid=size, count=64)) == "TSR5008"
    assert code_of(lambda: run(STORE, block=size, count=64)) == "TSR5008"


def test_dynamic_shared_memory_must_be_a_whole_number():
    assert code_of(lambda: run(STORE, shared=1.5)) == "TSR5008"
    with pytest.raises(TesseraError, match="cannot be negative: -1"):
        run(STORE, shared=-1)


def test_numbers_beyond_every_float_are_refused():
    text = HEADER + ".visible .entry k(.param .f32 a) { ret; }"
    kernel = Device().load(parse_module(text))["k"]
    assert code_of(lambda: kernel.launch(1, 1, [10**400])) == "TSR5007"


def test_arrays_have_no_negative_length():
    assert code_of(lambda: Device().empty(-5)) == "TSR5020"


def test_freed_arrays_cannot_be_read():
    device = Device()
    array = device.array(np.arange(4))
    array.close()
    array.close()
    assert code_of(array.numpy) == "TSR5002"
    assert code_of(array.view) == "TSR5002"


def test_writing_through_a_view_initialises():
    device = Device(checks=Checks(uninitialised=True))
    kernel = load(device, "ld.global.u32 %r5, [%rd2];")["k"]
    array = device.empty(32, np.uint32)
    array.numpy()
    assert code_of(lambda: kernel.launch(1, 32, [array])) == "TSR5015"
    array.view()[:] = 3
    kernel.launch(1, 32, [array])


def test_launches_from_several_threads_run_one_after_another():
    device = Device()
    kernel = load(
        device,
        """
        mov.u32 %r5, 0;
    more:
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p1, %r5, 100;
        @%p1 bra more;
        atom.global.add.u32 %r6, [%rd2], 1;
        """,
    )["k"]
    array = device.array(np.zeros(1024, np.uint32))
    logs: list[int] = []

    def work() -> None:
        for _ in range(5):
            logs.append(len(kernel.launch(4, 256, [array]).accesses))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (array.numpy() == 20).all()
    assert logs == [1] * 20


MIXED_UP = {
    "a number for a module": lambda d, a, k: d.load(123),
    "text without a parser": lambda d, a, k: d.load(HEADER),
    "no list of arguments": lambda d, a, k: k.launch(1, 32, a),
    "nothing for arguments": lambda d, a, k: k.launch(1, 32, None),
    "Python objects": lambda d, a, k: d.array([object()]),
    "ragged rows": lambda d, a, k: d.array([[1], [1, 2]]),
    "None": lambda d, a, k: d.array(None),
    "text for a shape": lambda d, a, k: d.empty("4"),
    "a float for a shape": lambda d, a, k: d.empty(1.5),
    "an unknown type": lambda d, a, k: d.empty(4, "zz"),
    "objects for a type": lambda d, a, k: d.empty(4, object),
    "memory below zero": lambda d, a, k: Device(memory_bytes=-1),
    "no memory": lambda d, a, k: Device(memory_bytes=0),
    "text for memory": lambda d, a, k: Device(memory_bytes="all"),
    "text for a device": lambda d, a, k: Device("cuda"),
    "a device too far": lambda d, a, k: Device(1 << 20),
    "a number for checks": lambda d, a, k: Device(checks=3),
    "text for steps": lambda d, a, k: k.launch(1, 32, [a], max_steps="many"),
    "no steps": lambda d, a, k: k.launch(1, 32, [a], max_steps=0),
    "an offset outside": lambda d, a, k: a.at(1 << 30),
    "text for an offset": lambda d, a, k: a.at("4"),
}


@pytest.mark.parametrize("mistake", MIXED_UP)
def test_arguments_that_are_mixed_up(mistake):
    device = Device()
    array = device.array(np.zeros(32, np.uint32))
    kernel = load(device, STORE)["k"]
    assert code_of(lambda: MIXED_UP[mistake](device, array, kernel)) == "TSR5024"


def test_any_size_of_memory_will_do():
    assert Device(memory_bytes=1000).array(np.arange(4)).numpy().tolist() == [0, 1, 2, 3]


def test_static_shared_memory_has_a_limit_of_its_own():
    body = ".shared .align 4 .b8 s[49156]; st.shared.u32 [s], %r1;"
    with pytest.raises(TesseraError, match="TSR5008") as refused:
        run(body)
    assert "49156 bytes of static shared memory: 49152 at most" in str(refused.value)


def test_code_for_older_gpus_cannot_require_clusters():
    text = HEADER.replace("sm_90a", "sm_80") + ".visible .entry k() { ret; }"
    Device().load(parse_module(text))["k"].launch(2, 32, [], cluster=2)
    own = text.replace("k()", "k() .reqnctapercluster 2")
    assert code_of(lambda: parse_module(own)) == "TSR1029"
