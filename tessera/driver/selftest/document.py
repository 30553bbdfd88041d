"""The document of a self-test: what is sent in.

In: the ground and rows of the parts. Out: JSON, written whole after every part and every few
seconds. A second call with the same file continues where the first ended, if options, machine and
version are the same; otherwise it raises TSR5062.

The document has no host name, path or date: `tidy` removes the folder from errors.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tessera.diagnostics import ExitCode, TesseraError, in_one_line
from tessera.driver.selftest.ground import TrialGround
from tessera.driver.selftest.options import SelftestOptions, SelftestPart
from tessera.frontend.machine.selftest_links import SELFTEST_SCHEMA
from tessera.frontend.text.nested import is_deep
from tessera.frontend.text.readfile import read_source
from tessera.ir.version import __version__
from tessera.output import Kind, is_regular, write_file

_EVERY_S = 2.0
_MISMATCH = ": TSR5054: "
_LISTS = ("copies", "exchanges", "links", "placements", "plans")

Row = dict[str, object]


@dataclass(slots=True, kw_only=True)
class PartRecord:
    """How a part went. `status`: waiting, skipped, incomplete, passed or failed."""

    status: str = "waiting"
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SelftestDocument:
    """The results so far. `rows` holds the lists of the parts, `profiles` those of the models."""

    path: str
    settings: Row
    machine: Row
    parts: dict[str, PartRecord]
    rows: dict[str, list[Row]]
    profiles: dict[str, Row]
    folder: str = ""
    written_s: float = 0.0

    def missing(self) -> list[str]:
        """The parts that are not done."""
        return [name for name, part in self.parts.items() if part.status in _OPEN]

    def exit_code(self) -> int:
        """The exit code of the command: 5 if bytes differ, 6 if anything else failed."""
        problems = [text for part in self.parts.values() for text in part.problems]
        if any(_MISMATCH in text for text in problems):
            return ExitCode.MISMATCH
        return ExitCode.FAULT if problems else ExitCode.OK

    def fail(self, part: SelftestPart, problem: TesseraError, what: str) -> None:
        """Note a problem of a part."""
        self.parts[part].problems.append(f"{what}: {self.tidy(problem)}")

    def tidy(self, problem: TesseraError) -> str:
        """An error in one line, without the names of folders."""
        finding = problem.diagnostics[0]
        text = f"{finding.code}: {in_one_line(finding)}"
        for folder in (self.folder, os.getcwd(), os.path.expanduser("~")):
            text = text.replace(folder, "...") if len(folder) > 1 else text
        return text

    def has(self, key: str, **wanted: object) -> bool:
        """Whether a list has a row with these values."""
        return any(wanted.items() <= row.items() for row in self.rows[key])

    def add(self, key: str, row: Row) -> None:
        """Add a row, and write the file every few seconds."""
        self.rows[key].append(row)
        if time.monotonic() - self.written_s >= _EVERY_S:
            self.write()

    def data(self) -> Row:
        """The document as JSON data."""
        return {
            "schema": SELFTEST_SCHEMA,
            "tessera": __version__,
            "settings": self.settings,
            "machine": self.machine,
            "missing": self.missing(),
            "parts": {
                name: {
                    "status": part.status,
                    "seconds": round(part.seconds, 2),
                    "problems": part.problems,
                }
                for name, part in self.parts.items()
            },
            **self.rows,
            "profiles": self.profiles,
        }

    def write(self) -> None:
        """Write the file, whole."""
        data = self.data()
        lists = {key: value for key, value in data.items() if isinstance(value, list)}
        parts = []
        for key, value in data.items():
            if key in lists and value:
                lines = ",\n".join("  " + json.dumps(row) for row in lists[key])
                parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
            else:
                parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
        text = "{" + ",\n".join(parts) + "}\n"
        write_file(self.path, text.encode(), Kind.SELFTEST)
        self.written_s = time.monotonic()


_OPEN = ("waiting", "incomplete")
_TEXTS = {
    "copies": ("source", "target"),
    "exchanges": ("source", "target"),
    "links": ("source", "target"),
    "placements": ("model", "placement"),
    "plans": ("model", "label"),
}
_NUMBERS = {
    "copies": ("bytes", "ns"),
    "exchanges": ("bytes", "ns", "p90_ns", "p99_ns", "count"),
    "links": ("latency_ns",),
}


def open_document(
    path: str, options: SelftestOptions, ground: TrialGround, machine: Row
) -> SelftestDocument:
    """A new document, or the existing one."""
    settings: Row = {
        "backend": options.backend,
        "devices": ground.devices,
        "models": [str(model) for model in options.chosen_models()],
        "size": str(options.chosen_size()),
        "seed": options.seed,
    }
    fresh = SelftestDocument(
        path=path,
        settings=settings,
        machine=machine,
        parts={name: PartRecord() for name in SelftestPart},
        rows={key: [] for key in _LISTS},
        profiles={},
    )
    there = is_regular(path) and os.path.exists(path) and os.path.getsize(path) > 0
    return _resumed(fresh, read_source(path).text) if there else fresh


def machine_facts(ground: TrialGround) -> Row:
    """The machine as the document describes it, without its name or paths."""
    facts: Row = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "devices": [
            {
                "name": device.name,
                "gpu": ground.machine.gpu_of(device).key,
                "sms": device.sms,
                "target": ground.targets.get(device.name, "cpu"),
            }
            for device in ground.machine.devices
        ],
    }
    if ground.backend == "cpu":
        return facts
    from tessera.backend.cuda.doctor import check_machine

    checkup = check_machine()
    return facts | {
        "cuda": checkup.cuda,
        "driver": checkup.driver or None,
        "newest_ptx": None if checkup.newest_ptx is None else list(checkup.newest_ptx),
        "packages": checkup.packages,
        "gpus": [
            {
                "target": f"cuda:{gpu.facts.ordinal}",
                "name": gpu.facts.name,
                "arch": gpu.facts.arch,
                "sms": gpu.facts.sms,
                "memory_bytes": gpu.facts.memory_bytes,
                "peers": [f"cuda:{peer}" for peer in gpu.peers],
            }
            for gpu in checkup.gpus
        ],
    }


def _resumed(fresh: SelftestDocument, text: str) -> SelftestDocument:
    """The document of a file, if it belongs to the same test."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise _refused(fresh.path, "it is not JSON") from None
    if is_deep(data) or not isinstance(data, dict) or data.get("schema") != SELFTEST_SCHEMA:
        raise _refused(fresh.path, f"its `schema` is not `{SELFTEST_SCHEMA}`")
    if data.get("tessera") != __version__:
        raise _refused(fresh.path, f"it is of version {str(data.get('tessera'))[:20]}")
    for key, wanted in (("settings", fresh.settings), ("machine", fresh.machine)):
        given = data.get(key)
        differs = _first_other(wanted, given) if isinstance(given, Mapping) else key
        if differs:
            raise _refused(fresh.path, f"its {key} differ in `{differs}`")
    parts, profiles = data.get("parts"), data.get("profiles")
    is_former = "exchanges" not in data
    rows = {key: data.get(key, [] if key == "exchanges" else None) for key in _LISTS}
    if (
        not isinstance(parts, dict)
        or not isinstance(profiles, dict)
        or not _are_rows(parts.values())
        or not _are_rows(profiles.values())
        or not all(isinstance(listed, list) and _are_rows(listed, k) for k, listed in rows.items())
        or set(parts) != set(fresh.parts)
    ):
        raise _refused(fresh.path, "parts of it are missing")
    for name, part in parts.items():
        problems, seconds = part.get("problems"), part.get("seconds")
        fresh.parts[name] = PartRecord(
            status=str(part.get("status")),
            seconds=float(seconds) if _is_number(seconds) else 0.0,
            problems=[str(text) for text in problems] if isinstance(problems, list) else [],
        )
    links = fresh.parts[SelftestPart.LINKS]
    if is_former and links.status == "passed":
        links.status = "incomplete"
    fresh.rows = {key: list(listed or ()) for key, listed in rows.items()}
    fresh.profiles = profiles
    return fresh


def _are_rows(values: Iterable[object], key: str = "") -> bool:
    """Whether values are objects with the fields that are read back."""
    return all(
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in _TEXTS.get(key, ()))
        and all(_is_number(value.get(name)) for name in _NUMBERS.get(key, ()))
        for value in values
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _first_other(wanted: Row, given: Mapping[str, object]) -> str:
    """The first key that differs; empty if none does. JSON has no tuples."""
    same = json.loads(json.dumps(wanted))
    return next((key for key in {**same, **given} if same.get(key) != given.get(key)), "")


def _refused(path: str, why: str) -> TesseraError:
    return TesseraError.of(
        "TSR5062",
        f"`{path}` is no self-test that this one can go on with: {why}",
        hint="give another name with `-o`, or take that file away",
    )
