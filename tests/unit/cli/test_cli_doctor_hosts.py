"""`tessc doctor --hosts`: facts, ways, a matrix that a machine file takes, and hosts that fail."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tessera.frontend.machine.machine_file import parse_machine
from tests.helpers.command import tessc
from tests.helpers.host_runs import hosts_file

MACHINE = """
link = "none"
[[node]]
name = "left"
link = "none"
[[node.card]]
gpu = "a100"
[[node]]
name = "right"
link = "none"
[[node.card]]
gpu = "l40s"
"""


def test_two_hosts_and_one_that_fails(tmp_path: Path) -> None:
    hosts = hosts_file(
        tmp_path,
        'name = "left"\ndevices = ["a100-0"]',
        'name = "right"\ndevices = ["l40s-0"]',
        'name = "third"\ncommand = "false"\ndevices = ["h100-0"]',
    )
    links = tmp_path / "links.toml"
    done = tessc("doctor", "--hosts", hosts, "--json", "-o", str(links))
    assert done.code == 4
    report = json.loads(done.text)
    assert not report["fine"]
    assert [row["name"] for row in report["hosts"]] == ["a100-0", "l40s-0", "h100-0"]
    assert "ended with exit code 1" in report["hosts"][2]["problem"]
    assert report["hosts"][0]["problem"] is None
    pairs = {(way["source"], way["target"]) for way in report["ways"]}
    assert pairs == {("a100-0", "l40s-0"), ("l40s-0", "a100-0")}
    rows = tomllib.loads(links.read_text())["link_matrix"]["bandwidth"]
    assert [cell for row in rows for cell in row].count("-") == 7
    report["ways"].sort(key=lambda way: way["source"])
    assert rows[0][1] == f"{report['ways'][0]['bytes_per_s'] / 1e9:.6f}GB/s"
    matrix = '[link_matrix]\ndevices = ["a100-0", "l40s-0"]\nlatency = "5us"\nbandwidth = '
    machine = parse_machine(MACHINE + matrix + json.dumps([row[:2] for row in rows[:2]]))
    assert len(machine.links) == 2
    assert all(link.bytes_per_second > 0 for link in machine.links)


def test_a_matrix_needs_devices(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, 'name = "left"')
    done = tessc("doctor", "--hosts", hosts, "-o", str(tmp_path / "links.toml"))
    assert done.code == 2
    assert "TSR3005" in done.err
    assert not (tmp_path / "links.toml").exists()
    assert tessc("doctor", "-o", str(tmp_path / "x.toml")).code == 2
