"""Contents on their way to the stand-in GPU: from a seed, from memory, by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera.backend.cuda import loading
from tessera.backend.cuda.api import Driver, DriverError
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.targets import open_devices
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Role
from tessera.ir.program.seeded import LazyContents, Seeded, source_of
from tests.helpers.fake_cuda import FakeCuda


def seeded(size: int, dtype: DataType | None, seed: int = 3) -> Seeded:
    buffer = Buffer(id=BufferId(0), name="w", bytes=size, role=Role.WEIGHT, dtype=dtype)
    return Seeded(buffer, seed)


class Locked:
    """The stand-in for one thread at a time."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake
        self._lock = threading.RLock()
        self.threads: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._fake, name)
        if not name.startswith("cu"):
            return inner

        def call(*arguments: Any) -> Any:
            with self._lock:
                if name == "cuMemcpyAsync":
                    self.threads.add(threading.get_ident())
                return inner(*arguments)

        return call


class Ground:
    def __init__(self) -> None:
        self.fake = FakeCuda()
        self.locked = Locked(self.fake)
        self.driver = Driver(self.locked)
        self.driver.initialise()
        (self.device,) = open_devices(self.driver, ("a",), {"a": "cuda:0"})
        devices = {"a": self.device}
        self.loader = loading.Loader(Helpers(self.driver, devices))

    def memory(self, size: int) -> int:
        self.driver.use(self.device.context)
        address = self.driver.allocate(size)
        self.driver.fill(address, 0xCC, size)
        return address


def test_a_seed_is_enough_to_make_contents_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LEAST_SEEDED_BYTES", 1)
    monkeypatch.setattr(loading, "_BLOCKS", 2)
    ground = Ground()
    monkeypatch.setattr(ground.fake, "cuMemcpyHtoD", None)  # nothing is made on the host
    for source in (seeded(6002, DataType.BF16), seeded(4096, DataType.S32)):
        size = source.buffer.bytes
        address = ground.memory(size)
        ground.loader.put("a", address, source, 0, size)
        ground.loader.finish()
        np.testing.assert_array_equal(ground.driver.download(address, size), source.read())
    assert ground.fake.launched == [("seed_values", ground.fake.sms)]


def test_a_part_of_seeded_contents_is_that_part() -> None:
    ground, source = Ground(), seeded(4096, DataType.F32)
    address = ground.memory(4096)
    ground.loader.put("a", address, source, 128, 640)
    ground.loader.finish()
    content = ground.driver.download(address, 4096)
    np.testing.assert_array_equal(content[128:640], source.read()[128:640])
    assert (content[:128] == 0xCC).all()
    assert (content[640:] == 0xCC).all()


def test_large_contents_go_through_pinned_memory_by_several_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(loading, "LEAST_STAGED_BYTES", 1)
    monkeypatch.setattr(loading.os, "cpu_count", lambda: 3)
    ground = Ground()
    monkeypatch.setattr(ground.fake, "cuMemcpyHtoD", None)
    random = np.random.default_rng(5)
    contents = [random.integers(0, 256, size, dtype=np.uint8) for size in (70_001, 5, 4096, 1024)]
    addresses = [ground.memory(content.nbytes) for content in contents]
    for address, content in zip(addresses, contents, strict=True):
        ground.loader.put("a", address, content, 0, content.nbytes)
    ground.loader.finish()
    for address, content in zip(addresses, contents, strict=True):
        np.testing.assert_array_equal(ground.driver.download(address, content.nbytes), content)
    assert not ground.fake.host, "pinned memory is given back"


def test_a_copy_that_fails_is_told_once_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(loading, "LEAST_STAGED_BYTES", 1)
    ground = Ground()
    address = ground.memory(1 << 16)
    copy: Callable[..., Any] = ground.fake.cuMemcpyAsync
    calls: list[int] = []

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        return (700,) if len(calls) == 7 else copy(*arguments)

    monkeypatch.setattr(ground.fake, "cuMemcpyAsync", failing)
    ground.loader.put("a", address, np.zeros(1 << 16, np.uint8), 0, 1 << 16)
    with pytest.raises(DriverError, match="700"):
        ground.loader.finish()
    assert not ground.fake.host


def test_lazy_contents_are_made_once_and_only_when_read() -> None:
    given = np.arange(8, dtype=np.uint8)
    lazy = LazyContents({"given": given, "made": seeded(64, DataType.F32)})
    assert source_of(lazy, "given") is given
    assert isinstance(source_of(lazy, "made"), Seeded)
    assert lazy["made"] is lazy["made"]
    assert source_of({"plain": given}, "plain") is given
    assert sorted(lazy) == ["given", "made"]
