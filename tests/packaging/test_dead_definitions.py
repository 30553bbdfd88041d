"""No definition of the package stands unused."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "tessera").rglob("*.py"))
# What Tessera itself does not call, and who does.
USED_ELSEWHERE = {
    "add_mixed": "generated code, by the name of the opcode",
    "and_": "generated code, by the name of the opcode",
    "build_program": "tests of capture without a GPU, and tools that have raw captures",
    "check_contents": "programs that keep a graph and its contents apart",
    "check_guards": "tests of the CUDA backend: bytes round places",
    "check_replica": "tests and tools that have launch programs and no plan",
    "create_module": "Python's import system",
    "encode_tiled": "users who make tensor maps (docs/reference/trace-format.md)",
    "fma_mixed": "generated code, by the name of the opcode",
    "groups_of": "tests of the planning problem",
    "line_text": "tests of positions",
    "max3": "generated code, by the name of the opcode",
    "min3": "generated code, by the name of the opcode",
    "not_": "generated code, by the name of the opcode",
    "or_": "generated code, by the name of the opcode",
    "problem_of": "tests of the planning problem",
    "to_networkx": "users (examples/03_longest_chain.py)",
}


def test_every_definition_is_used() -> None:
    words: Counter[str] = Counter()
    for path in SOURCES:
        words.update(re.findall(r"[A-Za-z_]\w*", path.read_text("utf-8")))
    grammars = " ".join(path.read_text("utf-8") for path in (ROOT / "grammars").glob("*.lark"))
    rules = set(re.findall(r"[a-z_]\w*", grammars))
    unused = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.decorator_list:
                continue
            special = node.name.startswith("__") or node.name in rules
            if words[node.name] == 1 and not special:
                unused.append(f"{path.relative_to(ROOT)}: {node.name}")
    names = {line.rpartition(" ")[2] for line in unused}
    assert [line for line in unused if line.rpartition(" ")[2] not in USED_ELSEWHERE] == []
    assert USED_ELSEWHERE.keys() <= names  # no stale exceptions
