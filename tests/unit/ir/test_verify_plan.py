"""Every rule of `verify_plan`, broken once in a real plan; the reader names the line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.print_plan import print_plan

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


@pytest.fixture(scope="module")
def text() -> str:
    options = PlanOptions(gpus="a100,l40s", pins=("m0.linear=a100", "m0.relu=l40s"), slots=2)
    found = print_plan(plan(MLP, options).plan)
    assert len(parse_plan(found).replicas[0].lowered.devices) == 2
    return found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r'card name="l40s-0"', 'card name="a100-0"', "a second card has the name `a100-0`"),
        (r'device name="l40s-0"', 'device name="a100-0"', "a second device has the name `a100-0`"),
        (r'device name="l40s-0" card="[^"]*"', 'device name="x" card="y"', "there is no card `y`"),
        (r'device name="l40s-0"', 'device name="host"', "no device can be called `host`"),
        (r"period_ns=[0-9.]+", "period_ns=1e999", "`period_ns` is out of range: inf"),
        (r"period_ns=[0-9.]+", "period_ns=-1.0", "`period_ns` is out of range: -1.0"),
        (r"used_bytes=[0-9]+", f"used_bytes={1 << 63}", "`used_bytes` is out of range"),
        (r"replica share=1.0", "replica share=0.5", "the shares of the replicas do not add up"),
        (r"slots=2 lanes=2 ", "slots=0 lanes=2 ", "at least one slot and one lane"),
        (r'devices="[^"]*","[^"]*"', 'devices="a100-0","a100-0"', "devices of the plan, each once"),
        (r"placement trace=0", "placement trace=1", "one placement for each trace, in order"),
        (r"step 1 name", "step 2 name", "step 1 is expected here"),
        (r'(step 1 name="\w+") device="[^"]*"', r'\1 device="h100"', "there is no device `h100`"),
        (r'(step 1 .*source="\w+")', r"\1 alone_ns=0.0", "`alone_ns` is one to two times"),
        (r'(step 1 .*source="\w+")', r"\1 alone_ns=1e18", "`alone_ns` is one to two times"),
        (r'(step 1 .*source="\w+")', r"\1 quiet_ns=0.0", "`alone_ns` is one to two times"),
        (r'(step 1 .*source="\w+")', r"\1 quiet_ns=1e18", "`alone_ns` is one to two times"),
        (r'(move .*) target="[^"]*"', r'\1 target="h100"', "there is no device `h100`"),
        (r'area device="[^"]*"', 'area device="h100"', "there is no device `h100`"),
        (r'kind="slot" (bytes=\d+) count=2', r'kind="slot" \1 count=3', "exists 2 times"),
        (r"(\n *area [^\n]*)", r"\1\1", "a second area is for"),
        (r"(\n *place [^\n]*)", r"\1\1", "a second place is for"),
        (r"place trace=0", "place trace=1", "there is no trace 1"),
        (r'(place .*) kind="slot"', r'\1 kind="lane"', "has no lane area"),
        (r'(place .*) kind="slot" offset=\d+', r'\1 kind="slot" offset=999936', "slot area of"),
        (r'(place .*) kind="slot" offset=\d+', r'\1 kind="slot" offset=1', "a multiple of 256"),
        (
            r"\n  request",
            '\n  home trace=0 buffer=77 device="a100-0" bytes=0:4\n  request',
            "buffer 77 has no place on `a100-0`",
        ),
        (r"(\n  request trace=0)", r"\1\1", "a second request is of trace `0`"),
        (r"request trace=0", "request trace=3", "there is no trace 3"),
        (r"transfer 1 buffer", "transfer 0 buffer", "a second transfer has the number `0`"),
        (r'(transfer 0 buffer=\d+) source="host"', r'\1 source="h100"', "no device `h100`"),
        (
            r'(transfer 0 buffer=\d+) source="[^"]*" target="([^"]*)"',
            r'\1 source="\2" target="\2"',
            "a transfer goes from one device to another",
        ),
        (r"(transfer 0 .*) bytes=\S+", r"\1 bytes=none", "at least one byte"),
        (r"(transfer 0 .*) bytes=\S+", r"\1 bytes=4:8,0:4", "byte range 0:4 is empty, unsorted"),
        (r"(transfer 0 .*) bytes=\S+", r"\1 bytes=0:4,4:8", "byte range 4:8 is empty, unsorted"),
        (r"(transfer 0 .*) bytes=\S+", r"\1 bytes=0:0", "byte range 0:0 is empty, unsorted"),
        (r'program device="l40s-0"', 'program device="a100-0"', "a second program is for"),
        (r'program device="l40s-0"', 'program device="h100"', "there is no device `h100`"),
        (r"\n *out send \d+", "", "has 1 `send`"),
        (r"\n *in recv \d+", "", "has 1 `recv`"),
        (r"(\n *in recv \d+)", r"\1\1", "not 2"),
        (r"in recv \d+", "in recv 99", "there is no such transfer"),
        (r"in recv", "compute recv", "this belongs on the in queue"),
        (r"out send", "compute send", "this belongs on the out queue"),
        (r"compute launch", "in launch", "this belongs on the compute queue"),
        (r"compute launch 0", "compute launch 99", "there is no step 99"),
        (r"compute launch 0", "compute launch 2", "step 0 is launched 0 times"),
        (r"(\n *(\w+) record (\d+))", r"\1\1", "is recorded 2 times"),
        (r"(\w+) record \d+", r"\1 record 99", "is never recorded on this device"),
        (r"compute launch 0", f"compute launch {'9' * 19}", "`step` is out of range"),
        (r"compute launch 0", f"compute launch {'9' * 25}", "the number is too large"),
        (r"compute launch 0", "compute jump 0", "`compute jump 0` is no operation"),
        (r"compute launch 0", "gpu launch 0", "begins with `compute`, `in` or `out`"),
        (r"compute free buffer=\d+", "compute free 3", "is no operation"),
        (r"trace name=\S+ share=1.0", 'trace name="t" share=0.5', "shares of the traces"),
        (r"\|//! buffer x bytes=3840", "|//! buffer x bytes=3841", "digests differ"),
    ],
)
def test_a_broken_rule_is_named(text: str, old: str, new: str, said: str) -> None:
    changed, count = re.subn(old, new, text, count=1)
    assert count == 1, f"{old} is not in the plan"
    with pytest.raises(TesseraError) as failure:
        parse_plan(changed, "p.tsp")
    matching = [one for one in failure.value.diagnostics if said in str(one.headline)]
    assert matching, [str(one.headline) for one in failure.value.diagnostics]
    assert matching[0].code == "TSR3020"
    assert matching[0].primary is not None
    assert len(failure.value.diagnostics) <= 20
