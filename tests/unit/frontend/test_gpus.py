"""Machines from `--gpus` lists and machine files, and the table behind them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpu_table import _TABLE, aliases, find_gpu, gpu_table
from tessera.frontend.machine.gpus import describe_card, machine_of
from tessera.frontend.machine.machine_file import parse_machine
from tessera.frontend.machine.quantities import parse_bandwidth, parse_bytes, parse_time_ns
from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

TRACES = ROOT / "examples" / "traces"


def test_every_row_of_the_table_has_usable_figures() -> None:
    for gpu in gpu_table().values():
        figures = (gpu.clock_mhz, gpu.memory_bandwidth, gpu.flops("fp32"), gpu.pcie_bandwidth)
        assert all(figure and math.isfinite(figure) and figure > 0 for figure in figures), gpu.key
        assert gpu.sms > 0
        assert gpu.memory_bytes > 10**9
        assert gpu.arch.startswith("sm_")


def test_every_alias_leads_to_a_row() -> None:
    assert {"a100", "h100", "4090", "v100"} <= set(aliases())
    assert set(aliases().values()) <= set(gpu_table())
    assert not set(aliases()) & set(gpu_table())


def test_figures_of_one_row() -> None:
    gpu = find_gpu("A100")
    assert (gpu.key, gpu.arch, gpu.sms, gpu.memory_bytes) == (
        "a100-80g-sxm",
        "sm_80",
        108,
        80 * 10**9,
    )
    assert gpu.flops("fp16") == 312e12
    assert gpu.flops("fp8") is None
    assert gpu.nvlink_bandwidth == 300e9


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a100,l40s", ["a100-0", "l40s-0"]),
        ("2xa100,l40s", ["a100-0", "a100-1", "l40s-0"]),
        ("a100,a100", ["a100-0", "a100-1"]),
        ("h200:84sm,h200:48sm", ["h200-0.0", "h200-0.1"]),
        ("h200:84sm,h200:84sm", ["h200-0.0", "h200-1.0"]),
        ("h200:132sm", ["h200-0"]),
        ("RTX PRO 6000", ["rtx-pro-6000-0"]),
    ],
)
def test_names_of_devices(text: str, names: list[str]) -> None:
    assert [device.name for device in machine_of(text).devices] == names


def test_slices_share_a_card_and_copy_through_its_memory() -> None:
    machine = machine_of("h200:84sm,h200:48sm,a100")
    assert [len(machine.slices_of(card.id)) for card in machine.cards] == [2, 1]
    by_name = {channel.name: channel for channel in machine.channels}
    assert by_name["h200-0.memory"].pairs == ((0, 1), (1, 0))
    assert by_name["h200-0.out"].pairs == ((0, 2), (1, 2))
    assert by_name["a100-0.in"].bytes_per_second == 12.5e9


def test_a_single_device_has_no_links() -> None:
    assert machine_of("l40s", "nvlink").links == ()


def test_every_source_that_a_row_names_is_in_the_list_or_says_what_it_is() -> None:
    """A key in capitals is a source of the list; everything else is words."""
    table = json.loads(_TABLE.read_text("utf-8"))
    for key, row in table["gpus"].items():
        cells = [*row["tflops_dense"].values(), *(v for v in row.values() if isinstance(v, dict))]
        for source in (s for cell in cells for s in cell.get("source", ())):
            assert source in table["sources"] or " " in source, (key, source)


def test_rows_of_newer_cards() -> None:
    assert find_gpu("b300").arch == "sm_103a"
    assert find_gpu("5090").key == "rtx5090"
    assert find_gpu("a10g").flops("fp16") == 70e12
    assert find_gpu("h100-nvl").memory_bytes == 94 * 10**9
    assert find_gpu("gb200").flops("fp32") == pytest.approx(152 * 256 * 1.965e9)


def test_a_gpu_of_ones_own_is_planned_for(tmp_path: Path) -> None:
    """The example of docs/concepts/planning.md."""
    page = (ROOT / "docs" / "concepts" / "planning.md").read_text("utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    trace, plan = TRACES / "mlp.ptx", tmp_path / "out.tsp"
    outcome = tessc(*map(str, ("plan", trace, "--machine", file, "-o", plan, "--json")))
    assert outcome.code == 0, outcome.err
    cards = {card["gpu"]: card for card in json.loads(outcome.text)["cards"]}
    assert cards["mine"]["like"] == "h100-pcie"
    assert cards["mine"]["capacity_bytes"] == 96 * 10**9 - 2**30


def test_an_own_tensor_rate_moves_the_other_types_too() -> None:
    own = parse_machine("[[card]]\ngpu='m'\n[gpu.m]\nlike='l40s'\nfp16_tflops=181.025").cards[0]
    assert own.gpu.flops("fp8") == pytest.approx(733e12 / 2)
    assert own.gpu.flops("fp32") == pytest.approx(91.6e12)


def test_overrides() -> None:
    machine = machine_of("2xa100,l40s", prices={"a100-1": 1.5}, memory={"l40s": 40 * 10**9})
    assert [card.usd_per_hour for card in machine.cards] == [1.59, 1.5, 0.99]
    assert describe_card(machine.cards[2]) == "l40s-0: L40S, 40.0 GB, $0.99/h (runpod)"


def test_equal_machines_have_equal_digests() -> None:
    assert machine_of("a100,l40s").digest() == machine_of("A100, l40s").digest()
    assert machine_of("a100,l40s").digest() != machine_of("a100,l40s", "nvlink10GB/s"[6:]).digest()


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("a101", "TSR3001", "did you mean"),
        ("h20O", "TSR3001", "`h200`"),
        ("", "TSR3002", "2xa100"),
        ("a100,,l40s", "TSR3002", "2xa100"),
        ("0xa100", "TSR3002", "2xa100"),
        ("a100:0sm", "TSR3002", "2xa100"),
        ("a100:109sm", "TSR3002", "2xa100"),
        ("999xa100", "TSR3002", "tessc fleet"),
        ("99999999xa100", "TSR3002", "tessc fleet"),
        ("9" * 5000 + "xa100", "TSR3002", "2xa100"),
        ("a100:" + "9" * 5000 + "sm", "TSR3002", "2xa100"),
        ("a100:999999sm", "TSR3002", "2xa100"),
        ("200xa100,200xl40s", "TSR3002", "tessc fleet"),
        ("00000000xa100", "TSR3002", "2xa100"),
        ("-1xa100", "TSR3002", "2xa100"),
        ("1.5xa100", "TSR3001", ""),
    ],
)
def test_lists_that_are_refused(text: str, code: str, hint: str) -> None:
    with pytest.raises(TesseraError, match=code) as failure:
        machine_of(text)
    assert hint in (failure.value.diagnostics[0].hint or "")


@pytest.mark.parametrize(
    "link", ["nvlink", "0Gb/s", "-1GB/s", "fast", "100", "nan GB/s", "1e999GB/s"]
)
def test_links_that_are_refused(link: str) -> None:
    with pytest.raises(TesseraError, match="TSR3002"):
        machine_of("a100,l40s", link)


def test_overrides_that_are_refused() -> None:
    with pytest.raises(TesseraError, match="TSR3002"):
        machine_of("a100", prices={"l40s": 1.0})
    with pytest.raises(TesseraError, match="TSR3002"):
        machine_of("a100", prices={"a100": math.nan})


def test_quantities() -> None:
    assert parse_bandwidth("100Gb/s") == 12.5e9
    assert parse_bandwidth("200 Gbit/s") == parse_bandwidth("200Gbps") == 25e9
    assert parse_bandwidth("25GB/s") == 25e9
    assert parse_bandwidth("25") is None
    assert parse_bandwidth("1e-300GB/s") == 0
    assert parse_bandwidth("1e300GB/s") is None
    assert parse_bytes("40GB") == 40 * 10**9
    assert parse_bytes("1.5GiB") == 3 << 29
    assert parse_bytes("4096") == 4096
    assert parse_bytes("40Gb") is None
    assert parse_time_ns("5us") == 5000
    assert parse_time_ns("5") is None


FILE = """
link = "100Gb/s"
transfer = "3us"
[[card]]
gpu = "a100"
count = 2
memory = "76GB"
price = 1.80
slices = [64, 32]
[[card]]
gpu = "mine"
[[link_between]]
devices = ["a100-0.0", "mine-0"]
bandwidth = "25GB/s"
latency = "5us"
[gpu.mine]
like = "l40s"
sms = 71
memory = "32GB"
memory_bandwidth = "700GB/s"
"""


def test_machine_file() -> None:
    machine = parse_machine(FILE)
    assert [device.name for device in machine.devices] == [
        "a100-0.0",
        "a100-0.1",
        "a100-1.0",
        "a100-1.1",
        "mine-0",
    ]
    assert [card.memory_bytes for card in machine.cards] == [76 * 10**9, 76 * 10**9, 32 * 10**9]
    assert machine.transfer_ns == 3000
    mine = machine.cards[2].gpu
    assert mine.flops("fp32") == pytest.approx(45.8e12)
    pair = next(link for link in machine.links if (link.source, link.target) == (0, 4))
    assert (pair.bytes_per_second, pair.latency_ns) == (25e9, 5000)
    covering = [channel.name for channel in machine.channels if (0, 4) in channel.pairs]
    assert covering == ["a100-0.0>mine-0"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = [", "not TOML"),
        ("", "no `[[card]]`"),
        ("[card]\ngpu='a100'", "expected a list, got a table, at `card`"),
        ("[[card]]\ngpu='a100'\ncounts=2", "unknown key `counts`"),
        ("[[card]]\ncount=2", "missing"),
        ("[[card]]\ngpu='a100'\ncount=0", "expected a whole number >= 1, at `card[0].count`"),
        ("[[card]]\ngpu='a100'\nslices=[100, 100]", "do not fit"),
        ("[[card]]\ngpu='a100'\nprice=nan", "expected a number >= 1e-06, at `card[0].price`"),
        ("[[card]]\ngpu='a100'\nmemory='0GB'", "above zero"),
        (
            "[[card]]\ngpu='a100'\n[[link_between]]\ndevices=['a', 'b']\nbandwidth='1GB/s'",
            "must be two of",
        ),
        ("gpu = 3\n[[card]]\ngpu='a100'", "expected a table, got a whole number, at `gpu`"),
    ],
)
def test_machine_files_that_are_refused(text: str, what: str) -> None:
    with pytest.raises(TesseraError, match="TSR3005") as failure:
        parse_machine(text)
    assert what in str(failure.value.diagnostics[0].headline)


def test_command() -> None:
    assert "a100-80g-sxm" in tessc("gpus").text
    rows = json.loads(tessc("gpus", "a100", "--json").text)["gpus"]
    assert [row["key"] for row in rows] == ["a100-80g-sxm"]
    outcome = tessc("gpus", "a101")
    assert outcome.code == 1
    assert "TSR3001" in outcome.err


NODES = """
link = "200Gb/s"

[[node]]
name = "left"
link = "nvlink"
[[node.card]]
gpu = "h100"
count = 2

[[node]]
name = "right"
link = "none"
[[node.card]]
gpu = "l40s"
count = 2
"""


def test_nodes_have_links_of_their_own_and_one_port_to_the_others() -> None:
    machine = parse_machine(NODES)
    assert [card.node for card in machine.cards] == ["left", "left", "right", "right"]
    speeds = {(link.source, link.target): link.bytes_per_second for link in machine.links}
    nvlink = machine.cards[0].gpu.nvlink_bandwidth
    assert speeds[0, 1] == speeds[1, 0] == nvlink
    assert (2, 3) not in speeds
    assert (3, 2) not in speeds
    assert all(speeds[a, b] == speeds[b, a] == 25e9 for a in (0, 1) for b in (2, 3))
    channels = {channel.name: channel for channel in machine.channels}
    assert set(channels) == {
        "h100-0.out",
        "h100-0.in",
        "h100-1.out",
        "h100-1.in",
        "left.out",
        "left.in",
        "right.out",
        "right.in",
    }
    assert set(channels["left.out"].pairs) == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert channels["left.out"].bytes_per_second == 25e9
    assert channels["h100-0.out"].pairs == ((0, 1),)


def test_a_matrix_of_links() -> None:
    machine = parse_machine(
        'link = "none"\n[[card]]\ngpu = "a100"\ncount = 3\n[link_matrix]\n'
        'devices = ["a100-0", "a100-1", "a100-2"]\nlatency = "5us"\n'
        'bandwidth = [["-", "10GB/s", "20GB/s"], ["-", "-", "none"], ["40GB/s", "-", "-"]]\n'
    )
    found = {(link.source, link.target): link.bytes_per_second for link in machine.links}
    assert found == {(0, 1): 10e9, (0, 2): 20e9, (2, 0): 40e9}
    assert {link.latency_ns for link in machine.links} == {5000.0}
    assert [channel.pairs for channel in machine.channels] == [((0, 1),), ((0, 2),), ((2, 0),)]


def test_no_link_at_all() -> None:
    machine = machine_of("a100,h200:60sm,h200:60sm", "none")
    assert {(link.source, link.target) for link in machine.links} == {(1, 2), (2, 1)}
    assert [channel.name for channel in machine.channels] == ["h200-0.memory"]


_TWO = '[[card]]\ngpu = "a100"\ncount = 2\n[link_matrix]\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[[card]]\ngpu = "a100"\n' + NODES.replace('link = "200Gb/s"', ""), "either all cards"),
        (NODES.replace('"right"', '"left"'), "a name of its own"),
        (NODES.replace('name = "right"', 'name = ""'), "a name of its own"),
        (NODES.replace('name = "right"', 'nam = "right"'), "unknown key `nam`"),
        ('[[node]]\nname = "left"\n', "has no `[[node.card]]`"),
        ("[[node]]\nname = 3\n", "expected a text, got a whole number, at `node[0].name`"),
        (_TWO + 'devices = ["a100-0", "x"]\nbandwidth = []\n', "`devices` must be a list of"),
        (_TWO + 'devices = ["a100-0", "a100-0"]\nbandwidth = []\n', "named once each"),
        (_TWO + 'devices = ["a100-0", "a100-1"]\nbandwidth = [["-", "-"]]\n', "a row for each"),
        (_TWO + 'devices = ["a100-0", "a100-1"]\nbandwidth = 3\n', "at `link_matrix.bandwidth`"),
        (
            _TWO + 'devices = ["a100-0", "a100-1"]\nbandwidth = [["-", "0GB/s"], ["-", "-"]]\n',
            "above zero",
        ),
        (
            _TWO + 'devices = ["a100-0", "a100-1"]\nbandwidth = [["-", nan], ["-", "-"]]\n',
            "expected a text, got a number, at `link_matrix.bandwidth[0][1]`",
        ),
        (
            _TWO + 'devices = ["a100-0", "a100-1"]\nbandwidth = [["-", "-1GB/s"], ["-", "-"]]\n',
            "above zero",
        ),
        (_TWO + "speed = 3\n", "unknown key `speed`"),
    ],
)
def test_nodes_and_matrices_that_are_refused(text: str, what: str) -> None:
    with pytest.raises(TesseraError, match="TSR3005") as failure:
        parse_machine(text)
    assert what in str(failure.value.diagnostics[0].headline)
