"""Ask ptxas about many statements at once, each in a kernel of its own, and remember the answers.

In: statements as `statements` makes them, a target and a version. Out: for each
statement what ptxas says against it, or None. `ptxas -arch compute_XX` reads and checks without
making code. It reports every line of a module that it refuses, except behind a syntax error: the
lines reported so far are left out and the rest is asked again until nothing is refused. Answers are
kept in a folder, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reading.statements import in_kernel, module_head
from tests.helpers.ptxas import COMPLAINT, ptxas_version, raised

BATCH = 400
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

    def ask(
        self, statements: Sequence[str], target: str, version: str
    ) -> dict[str, str | None] | None:
        """What is wrong with each statement; None if ptxas lacks the target or the version."""
        path = self.folder / f"{target}_{version}.json"
        known: dict[str, str | None] = json.loads(path.read_text()) if path.exists() else {}
        if known.get("") == "lacking":
            return None
        new = [text for text in dict.fromkeys(statements) if text not in known]
        for start in range(0, len(new), BATCH):
            answer = self._judge(new[start : start + BATCH], target, version)
            if answer is None:
                path.write_text('{"": "lacking"}')
                return None
            known |= answer
        if new:
            path.write_text(json.dumps(known))
        return {text: known[text] for text in statements}

    def _judge(
        self, statements: Sequence[str], target: str, version: str
    ) -> dict[str, str | None] | None:
        answer: dict[str, str | None] = dict.fromkeys(statements)
        live = list(statements)
        while live:
            lines, places = module_head(target, version), {}
            for number, text in enumerate(live):
                lines += [f".entry k{number}(.param .b64 pointer) {{", in_kernel(text), "}"]
                places[len(lines) - 1] = text  # lines count from 1
            code, output = self._run("\n".join(lines) + "\n", target)
            said = [(int(line), what.strip()) for line, what in COMPLAINT.findall(output)]
            # Modifiers in front of a syntax error are charged to what follows it.
            last = min((line for line, what in said if what.startswith("Parsing")), default=1 << 60)
            refused: dict[str, str] = {}
            for line, what in said:
                if line in places and line <= last:
                    refused.setdefault(places[line], what)
            if not refused:
                if code == 0:
                    return answer
                if _UNKNOWN_TARGET.search(output) or any(line <= 2 for line, _ in said):
                    return None
                if len(live) == 1:
                    return answer | {live[0]: output.strip()[:200]}
                half = len(live) // 2
                first = self._judge(live[:half], target, version)
                second = self._judge(live[half:], target, version)
                return None if first is None or second is None else answer | first | second
            answer |= refused
            live = [text for text in live if text not in refused]
        return answer

    def _run(self, text: str, target: str) -> tuple[int, str]:
        architecture = raised(target, self.executable).replace("sm_", "compute_")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "input.ptx")
            source.write_text(text)
            command = [self.executable, "-arch", architecture, str(source), "-o", f"{folder}/out"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
