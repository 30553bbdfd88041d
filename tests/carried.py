"""Are changes that the tests noticed in an earlier tree still noticed?

In: results of `python -m tests.sabotage run` in that tree. `draw RESULTS -o DRAWN` takes changes
that were noticed there, by a seed, and finds each in the code of today: the same change of the same
line of the same function. One whose line is gone is named, and another is taken in its place.
`python -m tests.sabotage run DRAWN -o NOW` tries them with the tests of today; `show DRAWN NOW`
counts those that are noticed, and names the others.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import random
import subprocess
from functools import cache
from pathlib import Path

from tests.helpers.code_changes import ROOT, Mutant, changes_of, key_of, mutants, sites_of
from tests.sabotage import read_rows

SEED, COUNT = 37, 200


def draw(rows: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Changes that were noticed, as they are made today."""
    noticed = [row for row in rows if row["result"] == "killed"]
    random.Random(seed).shuffle(noticed)
    found: dict[tuple[object, ...], Mutant] = {}
    for row in noticed:
        today = carried(row)
        if today is None:
            print(f"gone: {row['path']} {row['function']}: {row['how']}: {row['text']}")
        elif len(found) < count:
            found[key_of(today)] = today
    return list(found.values())


def carried(row: Mutant) -> Mutant | None:
    """A change in the code of today; None if its line is gone."""
    today = [one for one in every(row["package"]) if _place(one) == _place(row)]
    before = _sites_before(row)
    return today[before.index(row["site"])] if len(today) == len(before) else None


@cache
def every(package: str) -> list[Mutant]:
    """All changes of a package today."""
    return [*mutants(package)]


def _place(row: Mutant) -> tuple[object, ...]:
    return tuple(row[name] for name in ("path", "function", "how", "text"))


def _sites_before(row: Mutant) -> list[int]:
    """Where the change can be made in equal lines of the function, in the file as it was then."""
    text = _version(row["path"], row["source"])
    lines, sites = text.splitlines(), []
    for site, (function, node) in enumerate(sites_of(ast.parse(text))):
        if function == row["function"] and row["how"] in (how for how, _ in changes_of(node)):
            reached = getattr(node, "test", getattr(node, "iter", node))
            if lines[reached.lineno - 1].strip() == row["text"]:
                sites.append(site)
    return sites


@cache
def _version(path: str, digest: str) -> str:
    """The file whose text has a digest: as it is, or as a commit left it."""
    here = ROOT / path
    texts = [here.read_text("utf-8")] if here.exists() else []
    commits = iter(_git("log", "--format=%H", "--", path).split())
    while not texts or hashlib.sha256(texts[-1].encode()).hexdigest()[:16] != digest:
        texts.append(_git("show", f"{next(commits)}:{path}"))
    return texts[-1]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout


def show(drawn: list[Mutant], tried: list[Mutant]) -> None:
    """Counts those that are noticed, and names the others."""
    results = {key_of(row): row["result"] for row in tried}
    states = [results.get(key_of(one), "not tried") for one in drawn]
    print(f"{states.count('killed')} of {len(drawn)} are noticed")
    for one, state in zip(drawn, states, strict=True):
        if state != "killed":
            print(f"{state}: {one['path']}:{one['lines'][0]} {one['how']}: {one['text']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("draw", "show"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    rows = [read_rows(file) for file in options.files]
    if options.command == "draw":
        drawn = draw(rows[0], options.count, options.seed)
        options.output.write_text("".join(json.dumps(one) + "\n" for one in drawn), "utf-8")
    else:
        show(rows[0], rows[1])


if __name__ == "__main__":
    main()
