"""Ask ptxas about many statements at once, each in a kernel of its own, and remember the answers.

In: statements as `statements` makes them, a target and a version. Out: for each
statement what ptxas says against it, or None. `ptxas -arch compute_XX` reads and checks without
making code. It reports every line of a module that it refuses, up to a syntax error: what follows
is asked next, and then all that was not refused, until nothing is. Answers are kept in a folder, so
an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.reading.statements import in_kernel, module_head
from tests.helpers.ptxas import ptxas_version, raised

BATCH = 400
REMEMBERED = 2000
_COMPLAINT = re.compile(r"input\.ptx, line (\d+); (?:error|fatal)\s*: (.*)")
"""A complaint about our text; others are about code that ptxas puts in place of an instruction."""
_UNKNOWN_TARGET = re.compile(
    r"is not defined for option|Unsupported \.target|Unsupported \.version"
)


class Oracle:
    """One ptxas, and what it has said so far."""

    def __init__(self, executable: str, folder: Path) -> None:
        self.executable = executable
        self.version = ptxas_version(executable)
        self.folder = folder / self.version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.answers: dict[str, dict[str, str | None]] = {}

    def ask(
        self, statements: Sequence[str], target: str, version: str
    ) -> dict[str, str | None] | None:
        """What is wrong with each statement; None if ptxas lacks the target or the version."""
        known = self._known(f"{target}_{version}")
        if "" in known:
            return None
        new = [text for text in dict.fromkeys(statements) if text not in known]
        path = self.folder / f"{target}_{version}.jsonl"
        batches = [new[start : start + BATCH] for start in range(0, len(new), BATCH)]
        with ThreadPoolExecutor(2) as pool:
            for answer in pool.map(lambda texts: self._judge(texts, target, version), batches):
                rows = {"": "lacking"} if answer is None else answer
                known.update(rows)
                with path.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows.items())
        if "" in known:
            return None
        return {text: known[text] for text in statements}

    def taken(self) -> Iterator[tuple[str, str, str]]:
        """Every statement that was ever taken, with its target and version."""
        for path in sorted(self.folder.glob("*.jsonl")):
            target, _, version = path.stem.rpartition("_")
            for text, said in map(json.loads, path.read_text().splitlines()):
                if said is None:
                    yield text, target, version

    def _known(self, name: str) -> dict[str, str | None]:
        """The answers for a target and version; those of a few are kept in memory."""
        if name not in self.answers:
            path = self.folder / f"{name}.jsonl"
            lines = path.read_text().splitlines() if path.exists() else []
            while len(self.answers) >= REMEMBERED:
                self.answers.pop(next(iter(self.answers)), None)
            self.answers[name] = dict(map(json.loads, lines))
        return self.answers[name]

    def _judge(
        self, statements: Sequence[str], target: str, version: str
    ) -> dict[str, str | None] | None:
        answer: dict[str, str | None] = dict.fromkeys(statements)
        live, start = list(statements), 0
        while live:
            lines, places = module_head(target, version), {}
            for number, text in enumerate(live[start:]):
                lines += [f".entry k{number}(.param .b64 pointer) {{", in_kernel(text), "}"]
                places[len(lines) - 1] = text  # lines count from 1
            code, output = self._run("\n".join(lines) + "\n", target)
            said = [(int(line), what.strip()) for line, what in _COMPLAINT.findall(output)]
            refused: dict[str, str] = {}
            unread = ""
            for line, what in said:
                if line in places:
                    refused.setdefault(places[line], what)
                if what.startswith("Parsing"):
                    unread = places.get(line, "")
                    break
            if refused:
                answer |= refused
                behind = live.index(unread) if unread else 0
                start = sum(text not in refused for text in live[:behind])
                live = [text for text in live if text not in refused]
                start *= start < len(live)
            elif code == 0 and start == 0:
                return answer
            elif start:
                start = 0  # those in front of the last syntax error once more
            elif _UNKNOWN_TARGET.search(output) or any(line <= 2 for line, _ in said):
                return None
            elif len(live) == 1:
                return answer | {live[0]: output.strip()[:200]}
            else:
                half = len(live) // 2
                first = self._judge(live[:half], target, version)
                second = self._judge(live[half:], target, version)
                return None if first is None or second is None else answer | first | second
        return answer

    def _run(self, text: str, target: str) -> tuple[int, str]:
        architecture = raised(target, self.executable).replace("sm_", "compute_")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "input.ptx")
            source.write_text(text)
            command = [self.executable, "-arch", architecture, str(source), "-o", f"{folder}/out"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
