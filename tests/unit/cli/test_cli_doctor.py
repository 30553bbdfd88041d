"""`tessc doctor`, without a GPU and with the stand-in driver."""

from __future__ import annotations

import json

import pytest

from tessera.backend.cuda import doctor
from tessera.backend.cuda.api import Driver
from tests.helpers.command import tessc
from tests.helpers.fake_cuda import FakeCuda


def with_driver(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> None:
    found = doctor.check_machine
    monkeypatch.setattr(doctor, "check_machine", lambda: found(Driver(fake)))


def test_without_the_package_or_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, FakeCuda(gpus=0))
    outcome = tessc("doctor")
    assert outcome.code == 0
    assert "no GPU" in outcome.text
    assert "CPU backend" in outcome.text
    data = json.loads(tessc("doctor", "--json").text)
    assert data["gpus"] == []
    assert "CUDA_ERROR_NO_DEVICE" in data["problem"]


def test_whatever_this_machine_has() -> None:
    outcome = tessc("doctor")
    assert outcome.code == 0
    assert "package  torch" in outcome.text


def test_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, FakeCuda(gpus=2, memory=64 << 20))
    text = tessc("doctor").text
    assert "cuda:0   Fake GPU, sm_90, 132 SMs, 0.1 of 0.1 GiB free" in text
    assert "reaches the memory of cuda:1" in text
    data = json.loads(tessc("doctor", "--json").text)
    assert [gpu["peers"] for gpu in data["gpus"]] == [["cuda:1"], ["cuda:0"]]
    assert data["cuda"] == "13.0"
    assert data["newest_ptx"] == "9.0"


def test_gpus_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, FakeCuda(gpus=2, peers=False))
    assert "no other GPU" in tessc("doctor").text
