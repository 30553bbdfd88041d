"""Buffers that the machine has no memory for are refused before they are touched."""

from __future__ import annotations

import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory import host_memory, memory
from tessera.diagnostics import TesseraError


def test_a_buffer_beyond_the_free_memory_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 300 << 20)
    device = Device()
    with pytest.raises(TesseraError) as failure:
        device.empty(400 << 20, name="weights")
    found = failure.value.diagnostics[0]
    assert found.code == "TSR5020"
    assert "weights" in str(found.headline)
    assert device.empty(1 << 20).nbytes == 1 << 20


def test_the_smallest_limit_counts(monkeypatch, tmp_path):
    info, limit, used, stat = (tmp_path / n for n in ("info", "max", "current", "memory.stat"))
    info.write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    monkeypatch.setattr(host_memory, "_MEMINFO", info)
    monkeypatch.setattr(host_memory, "_GROUPS", ((str(tmp_path), "max", "current"),))
    assert host_memory.available_bytes() == 4 << 20
    limit.write_text("1048576\n")
    used.write_text("1000000\n")
    stat.write_text("anon 700000\ninactive_file 200000\nactive_file 100000\n")
    assert host_memory.available_bytes() == 48576 + 300000
    limit.write_text("max\n")
    assert host_memory.available_bytes() == 4 << 20


def test_nothing_is_refused_where_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(host_memory, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(host_memory, "_GROUPS", ())
    assert host_memory.available_bytes() is None
