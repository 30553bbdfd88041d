"""Files of arrivals: the formats that are read, and all that may be wrong with a file."""

from __future__ import annotations

import gzip
import io
import os
import random
import sys
from pathlib import Path
from unittest import mock

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.arrivals import read_arrivals as reader
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.ir.arrivals import Arrival, Arrivals

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
GOOD = {
    "azure": (
        AZURE + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n",
        (Arrival(0, 4808, 10), Arrival(52_000_000, 3180, 8)),
    ),
    "azure 2024": (
        AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 01:00:00.017335+01:00,2399,6",
        (Arrival(0, 2162, 5), Arrival(7_405_000, 2399, 6)),
    ),
    "azure over midnight": (
        AZURE + "2024-02-29 23:59:59,1,1\n2024-03-01T00:00:00Z,2,2\n",
        (Arrival(0, 1, 1), Arrival(1_000_000_000, 2, 2)),
    ),
    "columns in another order": (
        "GeneratedTokens, TIMESTAMP ,ContextTokens\r\n7,2023-11-16 18:17:03,9\r\n",
        (Arrival(0, 9, 7),),
    ),
    "burstgpt": (
        BURST + "5,ChatGPT,472,18,490,Conversation log\n45.25,GPT-4,1087,0,1087,API log\n",
        (Arrival(0, 472, 18), Arrival(40_250_000_000, 1087, 0)),
    ),
    "burstgpt with sessions": (
        BURST.replace("Model", "Session ID,Elapsed time,Model")
        + '5,,,"Chat, GPT",472,18,490,Conversation log\n',
        (Arrival(0, 472, 18),),
    ),
    "mooncake": (
        '{"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
        '{"timestamp": 3000, "input_length": 7, "output_length": 5, "hash_ids": []}\n'
        '{"output_length": 1, "timestamp": 3000.5, "input_length": 0}\n\n\n',
        (Arrival(0, 6758, 500, (0, 1)), Arrival(0, 7, 5), Arrival(500_000, 0, 1)),
    ),
}


def read(folder: Path, data: str | bytes, name: str = "file", **more: int) -> Arrivals:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_arrivals(str(path), **more)


@pytest.mark.parametrize("name", ["plain", "trace.jsonl", "trace.csv.gz"])
@pytest.mark.parametrize("case", GOOD)
def test_formats_are_known_by_what_is_in_them(tmp_path: Path, case: str, name: str) -> None:
    text, wanted = GOOD[case]
    form = case.split()[0] if case != "columns in another order" else "azure"
    for data in (text.encode(), gzip.compress(text.encode()), b"\xef\xbb\xbf" + text.encode()):
        found = read(tmp_path, data, name)
        assert found.requests == wanted
        assert found.form == form
        assert found.span_ns == wanted[-1].at_ns


def test_several_compressed_parts_are_one_file(tmp_path: Path) -> None:
    parts = [AZURE + "2023-01-01 00:00:00,1,2\n", "2023-01-01 00:00:01,3,4\n"]
    found = read(tmp_path, b"".join(gzip.compress(part.encode()) for part in parts))
    assert [request.at_ns for request in found.requests] == [0, 1_000_000_000]


def test_standard_input() -> None:
    for data in (GOOD["mooncake"][0].encode(), gzip.compress(GOOD["mooncake"][0].encode())):
        with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data))):
            assert read_arrivals("-").requests == GOOD["mooncake"][1]
    with mock.patch.object(sys, "stdin", None), pytest.raises(TesseraError, match="TSR1900"):
        read_arrivals("-")


def mooncake(**changed: object) -> str:
    import json

    value = {"timestamp": 1, "input_length": 2, "output_length": 3, **changed}
    return json.dumps({key: each for key, each in value.items() if each != "left out"}) + "\n"


FIRST = "2023-11-16 18:17:03,1,2\n"
BAD: dict[str, tuple[str | bytes, str, int, str]] = {
    "empty": ("", "TSR1903", 0, "is empty"),
    "blank": ("\n \n\n", "TSR1903", 0, "is empty"),
    "only a title": (AZURE, "TSR1903", 0, "has no requests"),
    "another table": ("a,b\n1,2\n", "TSR1914", 1, "none of the formats"),
    "a list": ("[1, 2]\n", "TSR1914", 1, "none of the formats"),
    "no title": (FIRST, "TSR1914", 1, "none of the formats"),
    "binary": (bytes(range(128, 256)), "TSR1914", 1, "not UTF-8"),
    "a column too many": (AZURE.replace("\n", ",More\n"), "TSR1914", 1, "no column `More`"),
    "a column twice": (AZURE.replace("\n", ",TIMESTAMP\n"), "TSR1914", 1, "is there twice"),
    "a column too few": ("TIMESTAMP,ContextTokens\n", "TSR1914", 1, "column `GeneratedTokens`"),
    "a cell too few": (AZURE + FIRST + "2023-11-16 18:17:04,1\n", "TSR1914", 3, "not 2"),
    "a cell too many": (AZURE + FIRST + "2023-11-16 18:17:04,1,2,3\n", "TSR1914", 3, "not 4"),
    "an empty cell": (AZURE + "2023-11-16 18:17:03,,2\n", "TSR1914", 2, "nothing in the column"),
    "an empty time": (AZURE + " ,1,2\n", "TSR1914", 2, "in the column `TIMESTAMP`"),
    "an empty line": (AZURE + FIRST + "\n" + FIRST, "TSR1914", 4, "line 3 is empty"),
    "no tokens": (AZURE + "2023-11-16 18:17:03,one,2\n", "TSR1914", 2, "a whole number"),
    "parts of tokens": (AZURE + "2023-11-16 18:17:03,1.5,2\n", "TSR1914", 2, "a whole number"),
    "negative tokens": (AZURE + "2023-11-16 18:17:03,1,-2\n", "TSR1914", 2, "from 0 to"),
    "too many tokens": (AZURE + "2023-11-16 18:17:03,9999999999,2\n", "TSR1914", 2, "from 0 to"),
    "long tokens": (AZURE + f"2023-11-16 18:17:03,{'9' * 5000},2\n", "TSR1914", 2, "a whole"),
    "other digits": (AZURE + "2023-11-16 18:17:03,\u0661,2\n", "TSR1914", 2, "a whole number"),
    "no date": (AZURE + "yesterday,1,2\n", "TSR1914", 2, "must be a date"),
    "no day": (AZURE + "2023-02-30 00:00:00,1,2\n", "TSR1914", 2, "no day of the calendar"),
    "year zero": (AZURE + "0000-02-03 00:00:00,1,2\n", "TSR1914", 2, "no day of the calendar"),
    "no hour": (AZURE + "2023-02-03 24:00:00,1,2\n", "TSR1914", 2, "no time of day"),
    "disorder": (
        AZURE + FIRST + "2023-11-16 18:17:02.5,1,2\n",
        "TSR1914",
        3,
        "comes 0.5 s before the one above it",
    ),
    "negative": (BURST + "-5,m,1,2,3,l\n", "TSR1914", 2, "must not be negative"),
    "not a number": (BURST + "nan,m,1,2,3,l\n", "TSR1914", 2, "a finite number"),
    "infinite": (BURST + "inf,m,1,2,3,l\n", "TSR1914", 2, "a finite number"),
    "underscores": (BURST + "1_0,m,1,2,3,l\n", "TSR1914", 2, "a finite number"),
    "too late": (BURST + "1e300,m,1,2,3,l\n", "TSR1914", 2, "too large"),
    "far too late": (BURST + "1e999,m,1,2,3,l\n", "TSR1914", 2, "too large"),
    "a cell that goes on": (BURST + '5,"m,1,2,3,l\n', "TSR1914", 2, "quotation marks"),
    "a cell with a line end": (BURST + '5,"m\n",1,2,3,l\n', "TSR1914", 2, "quotation marks"),
    "no model": (BURST + "5,,1,2,3,l\n", "TSR1914", 2, "in the column `Model`"),
    "half an object": ('{"timestamp": 1\n', "TSR1914", 1, "no JSON"),
    "another value": (mooncake() + "3\n", "TSR1914", 2, "an object is expected"),
    "deep": ('{"timestamp":' + "[" * 200_000 + "\n", "TSR1914", 1, "nested too deeply"),
    "a key too many": (mooncake(model="x"), "TSR1914", 1, "no key `model`"),
    "a key too few": (mooncake(input_length="left out"), "TSR1914", 1, "`input_length` is missing"),
    "nothing there": (mooncake(output_length=None), "TSR1914", 1, "`output_length` is missing"),
    "a text": (mooncake(timestamp="1"), "TSR1914", 1, "`timestamp` must be a number"),
    "a truth": (mooncake(timestamp=True), "TSR1914", 1, "`timestamp` must be a number"),
    "NaN": (mooncake(timestamp=float("nan")), "TSR1914", 1, "a finite number"),
    "Infinity": (mooncake(timestamp=float("inf")), "TSR1914", 1, "a finite number"),
    "below zero": (mooncake(timestamp=-0.5), "TSR1914", 1, "must not be negative"),
    "a long number": ('{"timestamp": ' + "1" * 5000 + "}\n", "TSR1914", 1, "no JSON"),
    "a large number": (mooncake(timestamp=10**40), "TSR1914", 1, "too large"),
    "half a token": (mooncake(input_length=1.5), "TSR1914", 1, "a whole number"),
    "no hashes": (mooncake(hash_ids=3), "TSR1914", 1, "must be a list"),
    "going back": (mooncake(timestamp=9) + mooncake(), "TSR1914", 2, "before the one above"),
    "cut off": (gzip.compress(AZURE.encode())[:-4], "TSR1914", 2, "is damaged"),
    "no gzip": (b"\x1f\x8b nothing", "TSR1914", 1, "is damaged"),
    "more after gzip": (gzip.compress(AZURE.encode()) + b"xx", "TSR1914", 2, "is damaged"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_one_error_with_its_line(tmp_path: Path, case: str) -> None:
    data, code, line, words = BAD[case]
    with pytest.raises(TesseraError) as failure:
        read(tmp_path, data)
    (found,) = failure.value.diagnostics
    assert found.code == code
    assert str(tmp_path / "file") in str(found.headline)
    assert words in str(found.headline)
    assert failure.value.exit_code == 1
    if line:
        assert found.primary is not None
        assert str(found.primary.span).startswith(f"{tmp_path / 'file'}:{line}:")
        assert f"line {line}: " in str(found.headline)


@pytest.mark.parametrize("where", range(3))
def test_a_damaged_byte_is_noticed(tmp_path: Path, where: int) -> None:
    rows = (f"2023-11-16 18:17:{i // 99:02}.{i % 99:02},{i},7\n" for i in range(3000))
    packed = bytearray(gzip.compress((AZURE + "".join(rows)).encode()))
    packed[len(packed) * (where + 1) // 4] ^= 0x55
    with pytest.raises(TesseraError) as failure:
        read(tmp_path, bytes(packed))
    assert failure.value.diagnostics[0].code == "TSR1914"


def test_long_lines_and_files_end_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TesseraError, match=r"TSR1914.*longer than 1048576 bytes"):
        read_arrivals("/dev/zero")
    bomb = gzip.compress(b"\0" * (8 << 20))
    with pytest.raises(TesseraError, match=r"TSR1914.*longer than"):
        read(tmp_path, bomb)
    monkeypatch.setattr(reader, "MOST_BYTES", 1000)
    with pytest.raises(TesseraError, match=r"TSR1904.*more than 1000 bytes"):
        read(tmp_path, mooncake() * 100)
    monkeypatch.setattr(reader, "MOST_REQUESTS", 3)
    with pytest.raises(TesseraError, match=r"TSR1904.*more than 3 requests"):
        read(tmp_path, mooncake() * 4)
    assert len(read(tmp_path, mooncake() * 3).requests) == 3


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, mooncake() * 5 + "broken\n", most=5)
    assert len(found.requests) == 5
    assert len(read(tmp_path, mooncake() * 5, most=9).requests) == 5


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE)
    with pytest.raises(TesseraError, match="TSR1900"):
        read_arrivals(str(tmp_path / "trce.csv"))
    with pytest.raises(TesseraError, match="TSR1900"):
        read_arrivals(str(tmp_path))
    with pytest.raises(TesseraError, match="TSR1900"):
        read_arrivals("a\0b")
    with (
        mock.patch("builtins.open", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(TesseraError, match="TSR1900"),
    ):
        read_arrivals(str(tmp_path / "trace.csv"))


def test_a_pipe_is_read(tmp_path: Path) -> None:
    end, writer = os.pipe()
    os.write(writer, GOOD["azure"][0].encode())
    os.close(writer)
    assert len(read_arrivals(f"/dev/fd/{end}").requests) == 2
    os.close(end)


def test_random_bytes_never_crash(tmp_path: Path) -> None:
    random_bytes = random.Random(7)
    texts = [text.encode() for text, _ in GOOD.values()]
    for _ in range(100):
        data = bytearray(random_bytes.choice(texts))
        for _ in range(random_bytes.randint(1, 4)):
            data[random_bytes.randrange(len(data))] = random_bytes.randrange(256)
        packed = bytes(data) if random_bytes.random() < 0.5 else gzip.compress(bytes(data))
        try:
            times = [request.at_ns for request in read(tmp_path, packed).requests]
        except TesseraError:
            continue
        assert times[0] == 0
        assert times == sorted(times)


# --- poisson -------------------------------------------------------------------------------------


def test_poisson() -> None:
    found = read_arrivals("poisson:20/s:4000", seed=3)
    assert found == read_arrivals("poisson:20/s:4000", seed=3)
    assert found.requests != read_arrivals("poisson:20/s:4000", seed=4).requests
    assert found.requests[0].at_ns == 0
    assert found.span_ns / 3999 == pytest.approx(50e6, rel=0.05)
    assert read_arrivals("poisson:1200/min:4000", seed=3).requests == found.requests
    assert len(read_arrivals("poisson:.5/h").requests) == 1000
    assert len(read_arrivals("poisson:20/s", most=7).requests) == 7
    assert len(read_arrivals("poisson:20/s:5", most=7).requests) == 5


@pytest.mark.parametrize(
    "text",
    [
        *("", "20", "20/", "/s", "0/s", "0.0/s", "-1/s", "nan/s", "inf/s", "1e3/s", "1_0/s"),
        *("20/day", "20 /s", "20/s:", "20/s:0", "20/s:-1", "20/s:x", "20/s:999999999"),
        *("20/s:5:6", "\u0661/s"),
    ],
)
def test_a_process_that_is_none(text: str) -> None:
    with pytest.raises(TesseraError) as failure:
        read_arrivals(f"poisson:{text}")
    assert [found.code for found in failure.value.diagnostics] == ["TSR1914"]
