"""Contents on a GPU: made from a seed, and out of a checkpoint by several threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.cuda import loading
from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.targets import OpenDevice, close_devices, open_devices, open_driver
from tessera.diagnostics import TesseraError
from tessera.frontend.contents.checkpoint import open_checkpoint
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Role
from tessera.ir.program.seeded import Seeded
from tests.helpers.checkpoints import sharded

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["cuda:0", "cuda:0:48sm"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Driver, OpenDevice, loading.Loader]]:
    try:
        driver = open_driver()
        devices = open_devices(driver, ("a",), {"a": request.param})
    except TesseraError as problem:
        pytest.skip(str(problem))
    by_name = {device.name: device for device in devices}
    helpers = Helpers(driver, by_name)
    driver.use(devices[0].context)
    yield driver, devices[0], loading.Loader(helpers)
    helpers.close()
    close_devices(driver, devices)


@pytest.mark.parametrize("dtype", sorted(loading._KINDS, key=str), ids=lambda dtype: dtype.value)
def test_a_seed_gives_the_bytes_of_the_host(
    place: tuple[Driver, OpenDevice, loading.Loader], dtype: DataType
) -> None:
    driver, _, loader = place
    size = ((8 << 20) + 3) * dtype.bytes
    buffer = Buffer(id=BufferId(0), name="w", bytes=size, role=Role.WEIGHT, dtype=dtype)
    address = driver.allocate(size)
    loader.put("a", address, Seeded(buffer, 5), 0, size)
    loader.finish()
    np.testing.assert_array_equal(driver.download(address, size), Seeded(buffer, 5).read())
    driver.free(address)


def test_a_checkpoint_by_several_threads(
    place: tuple[Driver, OpenDevice, loading.Loader],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "PIECE_BYTES", 1 << 20)
    monkeypatch.setattr(loading, "LEAST_STAGED_BYTES", 1 << 20)
    driver, _, loader = place
    random = np.random.default_rng(1)
    tensors = []
    for number, count in enumerate((5 << 20, 3, (2 << 20) + 7, 1 << 20)):
        content = random.integers(0, 256, 2 * count, dtype=np.uint8).tobytes()
        tensors.append((f"t{number}", "BF16", (count,), content))
    sharded(tmp_path, *tensors)
    checkpoint = open_checkpoint(tmp_path)
    addresses = {}
    for name, _, _, content in tensors:
        addresses[name] = driver.allocate(len(content))
        driver.fill(addresses[name], 0xCC, len(content))
        loader.put("a", addresses[name], checkpoint.read(name), 0, len(content))
    loader.finish()
    for name, _, _, content in tensors:
        assert driver.download(addresses[name], len(content)).tobytes() == content
        driver.free(addresses[name])
    checkpoint.close()
