"""Laws of `.tsp`: reading gives what was printed; whatever is read is a plan or an error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.diagnostics import Source, TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.frontend.plan.tsp_values import RangeReader
from tessera.ir.plan.launch_program import Bytes
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_launch import bytes_text
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.plan.verify_plan import verify_plan
from tessera.ir.text_digest import text_digest
from tests.helpers.share import share
from tests.property.plan_strategies import byte_ranges, plans

MLP = Path(__file__).parents[2] / "examples" / "traces" / "mlp.ptx"
ODD = [
    "",
    " ",
    "|",
    "\\",
    '"',
    "=",
    ",",
    ":",
    "0:",
    "1:0",
    "0:1+0*9",
    "0:1+2*99999999999",
    "0:1+1*4",
    "9" * 30,
    "9" * 5000,
    "-1",
    "1e999",
    "nan",
    "null",
    "none",
    "\x00",
    "\udc80",
    "é",
    "//",
    "compute launch 0",
    "in recv 0",
    "out send 99",
    "program",
    'devices="x"',
    "trace=7",
    "buffer=99999999999999999999",
    "replica share=1.0 slots=1 lanes=1",
    "[" * 500,
    "x" * 3000,
]


@given(plans())
def test_reading_gives_what_was_printed(one: Plan) -> None:
    assert not list(verify_plan(one))
    text = print_plan(one)
    assert parse_plan(text) == one
    assert print_plan(parse_plan(text)) == text


DIVIDED = """tessera-plan 4
plan objective="" strategy="" period_ns=1.0 latency_ns=1.0 usd_per_request=0.0 bound=0.0 gap=0.0 \
ended="" link="" machine_digest="" options=""
card name="c" gpu="" arch="" capacity_bytes=1 used_bytes=0 usd_per_hour=null
device name="a" card="c" sms=1 busy_ns=0.0
replica share=1.0 slots=1 lanes=1 devices="a"
  placement trace=0
    step 0 name="k" device="a" arch="" predicted_ns=1.0 error=0.0 source=""
    step 1 name="k" device="a" arch="" predicted_ns=1.0 error=0.0 source=""
    step 2 name="k" device="a" arch="" predicted_ns=1.0 error=0.0 source=""
trace name="t" share=1.0 digest="%s"
"""


@pytest.mark.parametrize(
    ("division", "words"),
    [
        ('cut 0 axis="x" edges=0,96,128', None),
        ('cut 0 axis="\\n" edges=0,96,128', None),
        ("twin 1 count=2", None),
        ('cut 2 axis="x" edges=0,96,128', "the trace has 2 steps"),
        ('cut 0 axis="x" edges=0,128,128', "edge 128 of `x` comes after edge 128"),
        ('cut 0 axis="x" edges=1,2,128', "begins at 1"),
        ('cut 0 axis="x" edges=0', "at least two parts"),
        ('cut 0 axis="x" edges=0,a,128', "`edges` has no such value"),
        ('cut 0 axis="x" edges=0,1,2 arch="sm_80"', "not for the launch itself"),
        ('cut 0 axis="x" edges=0,1,2\ncut 0 axis="y" edges=0,1,2', "cut twice"),
        ('cut 0 axis="x" edges=0,1,2\ntwin 0 count=2', "cut and has twins"),
        ("twin 0 count=1", "at least 2 steps"),
        ("twin 0 count=99999999999999999", "the trace has"),
        ('twin 0 count=2\ncut 0 axis="x" edges=0,1,2', "cannot stand here"),
    ],
)
def test_cuts_and_twins(division: str, words: str | None) -> None:
    text = DIVIDED % text_digest("") + division + "\n"
    if words is None:
        printed = print_plan(parse_plan(text))
        assert printed.endswith(f"  {division}\n")
        assert print_plan(parse_plan(printed)) == printed
        text = text.replace("tessera-plan 4", "tessera-plan 3")
        words = "version 3 has no cuts, twins and ranges of places: this is 4"
    with pytest.raises(TesseraError, match=words):
        parse_plan(text)


def test_a_newer_format_is_refused() -> None:
    later = (DIVIDED % text_digest("")).replace("tessera-plan 4", "tessera-plan 7")
    with pytest.raises(TesseraError, match="version 7 is unknown: this program reads 1, 2, 3, 4, "):
        parse_plan(later)


SENT = """  request trace=0
    transfer 0 buffer=%s source="%s" target="%s" bytes=%s
    program device="a"
      compute launch 0
      compute launch 1
      compute launch 2
      %s
    program device="b"
      in recv 0
"""


@pytest.mark.parametrize(
    ("buffers", "bytes_of", "source", "words"),
    [
        ("1,4,6", "0:64,128:200;0:4+8*32;16:32", "a", None),
        ("1", "0:64", "host", None),
        ("1,4", "0:64", "a", "has bytes of each buffer"),
        ("1", "0:64;0:64", "a", "has bytes of each buffer"),
        ("1,4", "0:64;none", "a", "at least one byte of each of its buffers"),
        ("1,4", "0:64;64:64", "a", "byte range 64:64 is empty"),
        ("1,4", "0:64;x", "a", "`x` is no byte range"),
        ("4,1", "0:64;0:4", "a", "in ascending order, each once"),
        ("1,1", "0:64;64:80", "a", "in ascending order, each once"),
        ("1,4", "0:64;0:4", "host", "from or to the host is of one buffer, not 2"),
        ("1,99999999999999999999", "0:64;0:4", "a", "`buffer` has no such value"),
    ],
)
def test_transfers_of_several_buffers(
    buffers: str, bytes_of: str, source: str, words: str | None
) -> None:
    send = "out send 0" if source == "a" else ""
    record = SENT % (buffers, source, "b", bytes_of, send)
    text = (DIVIDED % text_digest("")).replace("tessera-plan 4", "tessera-plan 5")
    text = text.replace('devices="a"', 'devices="a","b"').replace(
        "trace name", record + "trace name"
    )
    text = text.replace("replica", 'device name="b" card="c" sms=1 busy_ns=0.0\nreplica', 1)
    if words is None:
        printed = print_plan(parse_plan(text))
        assert f'buffer={buffers} source="{source}" target="b" bytes={bytes_of}\n' in printed
        if source == "host":
            assert printed.startswith("tessera-plan 2\n")
            return
        assert printed.startswith("tessera-plan 5\n")
        text = text.replace("tessera-plan 5", "tessera-plan 4")
        words = "version 4 has no transfers of several buffers: this is 5"
    with pytest.raises(TesseraError, match=words):
        parse_plan(text)


def test_lines_of_parts_say_what_they_are() -> None:
    text = DIVIDED % text_digest("") + 'cut 0 axis="x" edges=0,96,128\n'
    lines = [line for line in print_plan(parse_plan(text)).split("\n") if " step " in line]
    comments = [line.partition(" //")[2] for line in lines]
    assert comments == [" [x 0:96 of 128]", " [x 96:128 of 128]", ""]


@given(byte_ranges())
@settings(max_examples=7 * settings.default.max_examples)
def test_ranges_survive(ranges: Bytes) -> None:
    assert RangeReader().read(bytes_text(ranges), 0) == ranges


@given(st.integers(0, 100), st.integers(1, 9), st.integers(1, 9), st.integers(3, 40))
def test_rows_print_short(start: int, width: int, gap: int, count: int) -> None:
    rows = tuple(
        (start + at * (width + gap), start + at * (width + gap) + width) for at in range(count)
    )
    assert bytes_text(rows) == f"{start}:{start + width}+{width + gap}*{count}"
    step = 10 * (width + gap) * count
    planes = tuple((s + p * step, e + p * step) for p in range(3) for s, e in rows)
    assert bytes_text(planes) == f"{start}:{start + width}+{width + gap}*{count}+{step}*3"


@pytest.fixture(scope="module")
def real() -> str:
    pinned = PlanOptions(gpus="a100,l40s", pins=("m0.linear=a100", "m0.relu=l40s"))
    return print_plan(plan(MLP, pinned).plan)


def read(text: str) -> None:
    """Whatever the text, a plan or an error in the text; nothing else leaves the reader."""
    found, failure = None, None
    try:
        found = parse_plan(text, "hostile.tsp")
    except TesseraError as raised:
        failure = raised
    if found is not None:
        assert parse_plan(print_plan(found)) == found
    if failure is not None:
        assert failure.diagnostics
        for one in failure.diagnostics:
            assert one.code == "TSR3020"
            assert one.primary is not None
            line, _ = Source("hostile.tsp", text).position(one.primary.span.start)
            assert 1 <= line <= text.count("\n") + 1


@pytest.mark.parametrize("seed", share(range(6)))
def test_hostile_changes_of_a_real_plan(real: str, seed: int) -> None:
    rng = random.Random(seed)
    head, bar, trace = real.partition("\n|")
    lines = head.split("\n")
    for _ in range(60):
        changed = list(lines)
        for _ in range(rng.randint(1, 3)):
            _spoil(rng, changed)
        read("\n".join(changed) + bar + trace)


def _spoil(rng: random.Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    words = lines[at].split(" ")
    kind = rng.randrange(7)
    if kind == 0:
        del lines[at]
        lines.append("")
    elif kind == 1:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 2:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        words[rng.randrange(len(words))] = rng.choice(ODD)
        lines[at] = " ".join(words)
    elif kind == 4:
        chosen = rng.randrange(len(words))
        key, equal, _ = words[chosen].partition("=")
        words[chosen] = key + equal + rng.choice(ODD)
        lines[at] = " ".join(words)
    elif kind == 5:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    else:
        lines[at] += rng.choice(ODD)


@given(st.text(max_size=200))
@settings(max_examples=2 * settings.default.max_examples)
def test_any_text_is_refused_with_a_place(text: str) -> None:
    read(text)
    read("tessera-plan 1\nplan " + text)


def test_ranges_that_explode(real: str) -> None:
    line = next(line for line in real.split("\n") if line.lstrip().startswith("transfer"))
    for bomb in ("0:1" + "+2*9999" * 3, "0:1+2*99999999", ",".join(["0:1+2*999999"] * 3)):
        with pytest.raises(TesseraError, match="at most 2097152 byte ranges"):
            parse_plan(real.replace(line, line.rpartition("=")[0] + "=" + bomb))


def test_line_ends_of_dos_change_no_trace(real: str) -> None:
    """Version control may have put them there; the digest of the trace decides."""
    dos = real.replace("\n", "\r\n")
    assert parse_plan(dos) == parse_plan(real)
    with pytest.raises(TesseraError, match="digests differ"):
        parse_plan(dos.replace("buffer x bytes=", "buffer x  bytes="))
