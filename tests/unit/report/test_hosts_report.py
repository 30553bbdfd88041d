"""What `tessc doctor --hosts` shows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tessera.driver.hosts.examine_hosts import HostFacts, HostsReport
from tessera.report.hosts import hosts_json, hosts_text


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(0.3, "2 cores\n"), (600.0, "clock 600.0 s ahead"), (-90.0, "behind")]
)
def test_a_clock_that_is_off_is_said(ahead_s: float, words: str) -> None:
    fact = HostFacts(name="a", host="left", version="1", cores=2, clock_ahead_s=ahead_s)
    report = HostsReport(facts=(fact,), ways=(), has_devices=False)
    assert "2 x H200 (sm_90)" in hosts_text(
        replace(report, facts=(replace(fact, gpus=("H200 (sm_90)",) * 2),))
    )
    text = hosts_text(report)
    assert words in text
    assert ("clock" in text) == (abs(ahead_s) > 1)
    assert json.loads(hosts_json(report))["hosts"][0]["clock_ahead_s"] == ahead_s
