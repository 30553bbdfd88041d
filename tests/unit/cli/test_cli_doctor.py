"""`tessc doctor`, without a GPU and with the stand-in driver."""

from __future__ import annotations

import json
import platform
import re
import tomllib

import pytest

from tessera.backend.cuda import doctor
from tessera.backend.cuda.api import Driver
from tessera.ir.extras import PURPOSES, installed_extras
from tests.docs.pages import ROOT
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


def test_every_extra_is_named_with_what_it_is_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert list(PURPOSES) == [*dict.fromkeys((*PURPOSES, *project["optional-dependencies"]))]
    extras = {extra.name: dict(extra.packages) for extra in installed_extras()}
    for name, needed in project["optional-dependencies"].items():
        named = {re.split(r"[<>=; ]", each)[0].replace("_", "-") for each in needed}
        assert {each.replace("_", "-") for each in extras[name]} == named
    text = re.sub(" +", " ", tessc("doctor").text)
    assert f"Python {platform.python_version()}" in text
    for name, purpose in PURPOSES.items():
        assert f"[{name}]" in text
        assert purpose.split(",")[0] in " ".join(text.split())


def test_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, FakeCuda(gpus=2, memory=64 << 20))
    text = re.sub(" +", " ", tessc("doctor").text)
    assert "cuda:0 Fake GPU, sm_90, 132 SMs, 0.1 of 0.1 GiB free" in text
    assert "reaches the memory of cuda:1" in text
    data = json.loads(tessc("doctor", "--json").text)
    assert [gpu["peers"] for gpu in data["gpus"]] == [["cuda:1"], ["cuda:0"]]
    assert data["cuda"] == "13.0"
    assert data["newest_ptx"] == "9.0"


def test_gpus_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, FakeCuda(gpus=2, peers=False))
    assert "no other GPU" in tessc("doctor").text
