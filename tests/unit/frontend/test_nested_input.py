"""Input that is nested deeper than any reader can follow: one clear error each, or it is read.

A row per reader and per way to nest. Python gives up after some 1,000 levels, parsers in C later,
and what can be read may still be too deep to print.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BODY = HEAD + ".visible .entry k()\n{\n.reg .b32 %r<4>;\n"
TRACE = "//! tessera.trace 1\n"
PROFILE = '{"schema": "tessera-profile/1", "program": "x", "rows": '


def nested(opening: str, inside: str, closing: str, count: int) -> str:
    return opening * count + inside + closing * count


TOML = {
    "lists": lambda n: "x = " + nested("[", "", "]", n),
    "open lists": lambda n: "x = " + "[" * n,
    "tables": lambda n: "x = " + nested("{a = ", "1", "}", n),
    "dotted keys": lambda n: "a." * n + "a = 1",
    "dotted table": lambda n: "[" + "a." * n + "a]",
    "dotted list of tables": lambda n: "[[" + "a." * n + "a]]",
    "a card": lambda n: '[[card]]\ngpu = "a100"\ncount = ' + nested("[", "", "]", n),
    "slices": lambda n: '[[card]]\ngpu = "a100"\nslices = ' + nested("[", "", "]", n),
    "a name": lambda n: "[[card]]\ngpu = " + nested("[", "", "]", n),
    "devices": lambda n: (
        '[[card]]\ngpu = "a100"\n[[link_between]]\ndevices = ' + nested("[", "", "]", n)
    ),
}
JSON = {
    "lists": lambda n: nested("[", "", "]", n),
    "open lists": lambda n: "[" * n,
    "objects": lambda n: nested('{"a": ', "1", "}", n),
    "open objects": lambda n: '{"a": ' * n,
    "rows": lambda n: PROFILE + nested("[", "", "]", n) + "}",
    "a time": lambda n: (
        PROFILE
        + '[{"step": 0, "name": "a", "gpu": "a100", "ns": '
        + nested("[", "", "]", n)
        + "}]}"
    ),
    "a type": lambda n: '{"x": {"dtype": ' + nested("[", "", "]", n) + "}}",
    "metadata": lambda n: '{"__metadata__": ' + nested('{"a": ', '"b"', "}", n) + "}",
}
PTX = {
    "parentheses": lambda n: BODY + "mov.b32 %r1, " + nested("(", "1", ")", n) + ";\n}\n",
    "open parentheses": lambda n: BODY + "mov.b32 %r1, " + "(" * n,
    "minus": lambda n: BODY + "mov.b32 %r1, " + "-" * n + "1;\n}\n",
    "choices": lambda n: BODY + "mov.b32 %r1, " + nested("1 ? ", "1", " : 1", n) + ";\n}\n",
    "blocks": lambda n: BODY + nested("{", "", "}", n) + "\n}\n",
    "open blocks": lambda n: BODY + "{" * n,
    "brackets": lambda n: BODY + "ld.global.b32 %r1, " + nested("[", "%r1", "]", n) + ";\n}\n",
    "vectors": lambda n: BODY + "mov.b32 " + nested("{", "%r1", "}", n) + ", 1;\n}\n",
    "initialiser": lambda n: HEAD + ".global .u32 a[1] = " + nested("{", "1", "}", n) + ";\n",
    "dimensions": lambda n: HEAD + ".global .u32 a" + "[1]" * n + ";\n",
    "generic": lambda n: HEAD + ".global .u64 a = " + nested("generic(", "a", ")", n) + ";\n",
    "a number": lambda n: BODY + "mov.b32 %r1, " + "9" * n + ";\n}\n",
    "a size": lambda n: TRACE + "//! buffer x bytes=" + "9" * n + " role=input\n" + HEAD,
    "a float": lambda n: BODY + "mov.b32 %r1, " + "9" * n + ".5e" + "9" * n + ";\n}\n",
    "trace arguments": lambda n: (
        TRACE + "//! launch m.k grid=1 block=1 args=" + nested("[", "", "]", n) + "\n" + HEAD
    ),
    "trace operands": lambda n: TRACE + "//! op aten::mm.out " + nested("(", "", ")", n) + "\n",
    "trace pointers": lambda n: TRACE + "//! pointers x @" + nested("{", "", "}", n) + "\n",
}
GRAPH = {
    "brackets": lambda n: "tessera-graph 2\nbuffer 0 " + "[" * n,
    "escapes": lambda n: 'tessera-graph 2\nnode 0 "' + "\\" * n + '"\n',
    "a number": lambda n: "tessera-graph " + "9" * n,
}
PLAN = {
    "brackets": lambda n: "tessera-plan 1\nplan " + "[" * n,
    "a number": lambda n: "tessera-plan " + "9" * n,
    "a gap": lambda n: 'tessera-plan 1\nplan objective="throughput" gap=' + "9" * n + "\n",
}
GPUS = ("--gpus", "a100", "-o", "/dev/null")
READERS = {
    "machine.toml": (TOML, ("plan", "mlp.ptx", "-o", "/dev/null", "--machine")),
    "profile.json": (JSON, ("plan", "mlp.ptx", *GPUS, "--profile")),
    "placement.txt": (JSON, ("plan", "mlp.ptx", *GPUS, "--placement")),
    "data.safetensors": (JSON, ("run", "mlp.ptx", "--data")),
    "module.ptx": (PTX, ("analyze", "-o", "/dev/null")),
    "graph.tsg": (GRAPH, ("plan", *GPUS)),
    "plan.tsp": (PLAN, ("check",)),
}
# Parsers in C give up late. What reads PTX is Python, which gives up at 1,000 levels.
DEPTHS = {"module.ptx": (60, 900, 5_000)}
CASES = [
    (file, name, count)
    for file, (texts, _) in READERS.items()
    for name in texts
    for count in DEPTHS.get(file, (60, 900, 20_000))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("nested")
    shutil.copy(MLP, found)
    return found


@pytest.mark.parametrize(("file", "name", "count"), CASES)
def test_nested(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, name: str, count: int
) -> None:
    monkeypatch.chdir(folder)
    texts, command = READERS[file]
    data = texts[name](count).encode()
    if file.endswith(".safetensors"):
        data = len(data).to_bytes(8, "little") + data
    Path(file).write_bytes(data)
    outcome = tessc(*command, file)
    assert "TSR9000" not in outcome.err
    assert outcome.code in ((0, 1) if file == "module.ptx" else (1,))
    assert outcome.code == 0 or "error[TSR" in outcome.err
    assert len(outcome.err) < 6000


@pytest.mark.parametrize(
    "header",
    ["(" * 9000, "-" * 9000 + "1", "{'descr': " * 900, "[" * 4000 + "]" * 4000, "~" * 5000 + "1"],
)
def test_headers_of_arrays(folder: Path, monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    monkeypatch.chdir(folder)
    text = header.encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text)
    Path("data.npz").write_bytes(stream.getvalue())
    outcome = tessc("run", "mlp.ptx", "--data", "data.npz")
    assert outcome.code == 1
    assert (
        "array `x` in `data.npz` cannot be read as contents: its header is damaged" in outcome.err
    )


@pytest.mark.parametrize("seed", ["9" * 5000, "٣", "-1", ""])
def test_seeds_of_placements(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.chdir(folder)
    outcome = tessc("plan", "mlp.ptx", *GPUS, "--placement", f"random:{seed}")
    assert (outcome.code, "error[TSR3017]" in outcome.err) == (1, True)
