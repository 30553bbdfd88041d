"""A run in which a change is not noted to matter is the same with the change."""

from __future__ import annotations

import ast
import random
from typing import Any

import numpy as np

from tessera.passes.byte_sets import intervals
from tests.helpers import code_changes
from tests.helpers.code_changes import changes_of, differing, key_of, mutants, sites_of
from tests.helpers.share import least, share

PATH = "tessera/passes/byte_sets/intervals.py"
TEXT = (code_changes.ROOT / PATH).read_text("utf-8")
CHANGES = [change for change in mutants("byte_sets") if change["path"] == PATH]
CALLS = [
    ([[0, 4], [4, 8], [16, 24]], [[2, 6], [20, 40]], 3),
    ([[0, 4]], [[4, 8]], 1),
    ([], [[1, 2]], 2),
    ([[8, 16], [32, 33], [40, 64]], [[0, 64]], 2),
]


def results(tree: ast.Module) -> list[str]:
    """What some functions of the module give for some sets."""
    functions: dict[str, Any] = {"__name__": "changed"}
    exec(compile(ast.fix_missing_locations(tree), PATH, "exec", dont_inherit=True), functions)
    found = []
    for left, right, most in CALLS:
        one, other = (np.array(rows, dtype=np.int64).reshape(-1, 2) for rows in (left, right))
        for name, arguments in (
            ("union", ([one, other],)),
            ("intersect", (one, other)),
            ("covers", (one, other)),
            ("clip", (one, 3, 20)),
            ("narrow_to", (one, most)),
        ):
            try:
                found.append(repr(functions[name](*arguments)))
            except Exception as error:
                found.append(type(error).__name__)
    return found


def test_what_does_not_matter_changes_nothing() -> None:
    assert intervals.__file__ is not None
    plain = results(ast.parse(TEXT))
    chosen = random.Random(1).sample(CHANGES, least(60, 20))
    differing().clear()
    woven = ast.parse(TEXT)
    code_changes.weave(woven, chosen)
    assert results(woven) == plain
    noted = {*differing()}
    alike = 0
    for change in chosen:
        tree = ast.parse(TEXT)
        node = [*sites_of(tree)][change["site"]][1]
        next(make for how, make in changes_of(node) if how == change["how"])()
        is_same = results(tree) == plain
        assert is_same or key_of(change) in noted, change
        alike += key_of(change) not in noted
    assert 0 < alike < len(chosen)


def test_every_change_can_be_watched() -> None:
    for package in share(("byte_sets", "dependences")):
        files: dict[str, list[code_changes.Mutant]] = {}
        for change in mutants(package):
            files.setdefault(change["path"], []).append(change)
        for path, changes in files.items():
            tree = ast.parse((code_changes.ROOT / path).read_text("utf-8"))
            code_changes.weave(tree, changes)
            compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
