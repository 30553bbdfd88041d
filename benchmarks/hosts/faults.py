"""Faults in runs over hosts, injected at random moments.

    python -m benchmarks.hosts.faults run --count 300 --seconds 3600 -o out/host_faults.jsonl
    python -m benchmarks.hosts.faults report out/host_faults.jsonl -o FILE

Needs root and `ip`: hosts are network namespaces. A line per case is added to the file, and cases
that it has are not done again. A case is a run without end of two sequences, whose outputs are
compared with those of one device as they come; then one of these happens:

- `kill`, `stop`: SIGKILL or SIGSTOP of the process of a random device
- `cut`: the cable of a host is cut
- `daemon`: the daemon of a host ends, through which all its processes were started
- `driver`: the driver ends, by SIGKILL, SIGTERM or SIGINT; also while it starts
- `disk`: the disk of a host is full; the run must go on
- `version`, `token`: a process of another version, or without the token, takes part

`seconds` is the time from the fault until every request under way has ended, for `driver` until no
process is left on any host. `named` says whether every error names host and device, `operation`
whether one says what the device was at, `wrong` how many outputs differ, `lost` how many requests
neither finished nor failed, `left` how many processes stayed.

Longer than 400 lines because all faults of one kind of run share hosts, feed and report.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from benchmarks.hosts.cases import Row, act, command_line, do_case, rows_of, seeds, write_report
from tessera.backend.hosts.hosts_backend import HostsBackend
from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.run.runtime import Runtime
from tests.helpers import node_daemon
from tests.helpers.host_runs import backends_of, inputs_of
from tests.helpers.namespaces import hosts_in, ip, namespaces, processes_in
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program

LIMIT_S = 30.0
"""Seconds; longer than any fault may take."""
IN_TIME_S = {"kill": 1.0, "cut": 1.0, "stop": 2.0, "daemon": 1.0, "driver": 1.0}
IN_TIME_S |= {"vanish": 1.0, "oneway": 1.0, "address": 1.0, "frozen": 2.0}
"""Seconds within which a fault has to be named; the last four are of `fresh_faults`."""
TURNS = ["kill", "cut", "stop", "cut", "daemon", "kill", "cut", "driver", "disk", "cut"]
TURNS += ["kill", "daemon", "stop", "cut", "version", "kill", "daemon", "stop", "cut", "token"]
AT = ("queue", "launch", "it was to send", "done there", "its end there")
"""One of these words is where an error says what a device was at."""
KNOWN = 600
"""Outputs of each sequence that are computed on one device before the faults."""

OTHER_VERSION = """
import json, struct, sys, time
head = json.dumps({"kind": "hello", "version": "99.1", "pid": 1}).encode()
sys.stdout.buffer.write(b"\\x00tessera-channel/1\\n" + struct.pack("<II", len(head), 0) + head)
sys.stdout.flush()
time.sleep(60)
"""
OTHER_TOKEN = """
from tessera.backend.transports import proved_links
real = proved_links._proof
proved_links._proof = lambda token, *a, **k: real("another", *a, **k)
from tessera.driver.hosts.device_process import main
main()
"""


class Hosts:
    """Two namespaces, and the files of hosts that lead there."""

    def __init__(self, folder: Path, places: list[tuple[str, str]]) -> None:
        self.folder, self.places = folder, places
        names = ["left", "right"]
        self.plain = hosts_in(self._below("plain"), names, places)
        self.disk = self._below("disk") / "full"
        self.disk.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(self.disk)], check=True
        )
        self.kept = {
            "plain": KeptHosts(self.plain),
            "disk": KeptHosts(self._file("disk", f"env TMPDIR={self.disk} HOME={self.disk}")),
            "daemon": KeptHosts(self._called()),
        }
        self.wrong = {
            kind: self._script(kind, text)
            for kind, text in (("version", OTHER_VERSION), ("token", OTHER_TOKEN))
        }
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def _below(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _file(self, name: str, more: str) -> str:
        path = hosts_in(self._below(name), ["left", "right"], self.places)
        text = Path(path).read_text().replace('"\naddress', f' {more}"\naddress')
        Path(path).write_text(text)
        return path

    def _called(self) -> str:
        path = self._below("daemon") / "hosts.toml"
        rows = []
        for host, (_, address) in zip(["left", "right"], self.places, strict=True):
            words = f"{sys.executable} -S -E {node_daemon.__file__} call {self._socket(host)}"
            rows.append(f'[[host]]\nname = "{host}"\ncommand = "{words}"\naddress = "{address}"\n')
        path.write_text("".join(rows))
        return str(path)

    def _socket(self, host: str) -> Path:
        return self.folder / f"{host}.socket"

    def _script(self, kind: str, text: str) -> str:
        folder = self._below(kind)
        script = folder / "python"
        script.write_text(f"#!{sys.executable}\n{text}")
        script.chmod(0o755)
        path = Path(hosts_in(folder, ["left", "right"], self.places))
        path.write_text(path.read_text() + f'python = "{script}"\n')
        return str(path)

    def start_daemons(self) -> None:
        """Start the daemons that are not there."""
        for host, (place, _) in zip(["left", "right"], self.places, strict=True):
            daemon = self.daemons.get(host)
            if daemon is None or daemon.poll() is not None:
                self._socket(host).unlink(missing_ok=True)
                words = ["ip", "netns", "exec", place, sys.executable, "-S", "-E"]
                self.daemons[host] = subprocess.Popen(
                    [*words, node_daemon.__file__, "serve", str(self._socket(host))]
                )
                while not self._socket(host).exists():
                    time.sleep(0.01)

    def processes(self) -> set[int]:
        """Processes in the namespaces, without daemons, their children and kept processes."""
        idle = {n for kept in self.kept.values() for n in kept.processes()}
        daemons = {d.pid for d in self.daemons.values() if d.poll() is None}
        there = {n for place, _ in self.places for n in processes_in(place)} - idle - daemons
        return {number for number in there if parent_of(number) not in daemons}

    def close(self) -> None:
        """End everything."""
        for kept in self.kept.values():
            kept.close()
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        subprocess.run(["umount", str(self.disk)], check=True)


def parent_of(process: int) -> int:
    """The parent of a process; 0 if the process is gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Feed:
    """Requests of two sequences without end, each compared with what one device computes."""

    def __init__(self, runtime: Runtime, known: list[list[str]]) -> None:
        self._runtime, self._known = runtime, known
        self.inputs = inputs_of(runtime)
        self.good, self.wrong = 0, 0
        self.failures: list[tuple[float, BaseException]] = []
        self.stop = False
        self.threads = [threading.Thread(target=self._feed, args=(n,), daemon=True) for n in (0, 1)]
        for thread in self.threads:
            thread.start()

    def _feed(self, sequence: int) -> None:
        for wanted in self._known[sequence]:
            if self.stop:
                return
            try:
                result = self._runtime.submit(self.inputs, sequence=sequence).result(LIMIT_S)
            except BaseException as problem:
                self.failures.append((time.monotonic(), problem))
                return
            if digest(result) == wanted:
                self.good += 1
            else:
                self.wrong += 1

    def row(self, moment: float, lost: int, expected: int) -> Row:
        """The outcome of all requests after a fault; `expected` of them had to fail."""
        texts = [said(problem) for _, problem in self.failures]
        last = max((at for at, _ in self.failures), default=moment)
        return {
            "seconds": round(last - moment, 3),
            "good": self.good,
            "wrong": self.wrong,
            "lost": lost,
            "failed": len(texts),
            "as_expected": len(texts) == expected,
            "operation": all(any(word in text for word in AT) for text in texts),
            "said": texts[0].splitlines()[0] if texts else "",
        }

    def wait(self) -> int:
        """Wait until all have ended; how many have not."""
        deadline = time.monotonic() + LIMIT_S
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return sum(thread.is_alive() for thread in self.threads)


def digest(result: object) -> str:
    """The SHA-256 of all outputs of a request."""
    bytes_of = result._completion.outputs  # type: ignore[attr-defined]
    state = hashlib.sha256()
    for name in sorted(bytes_of):
        state.update(bytes_of[name].tobytes())
    return state.hexdigest()


def make_plans(folder: Path) -> tuple[dict[int, str], list[list[str]]]:
    """Plans for two and for three devices, and what each sequence computes on one device."""
    program = random_program(12, steps=8)
    hosts = {"a": "left", "b": "right", "c": "left"}
    paths = {}
    for count in (2, 3):
        (folder / str(count)).mkdir()
        steps = ["abc"[n % count] for n in range(len(program.steps))]
        plan = plan_of([program], [steps], hosts={d: hosts[d] for d in "abc"[:count]})
        paths[count] = write_plan(folder / str(count), plan)
    (folder / "one").mkdir()
    alone = write_plan(folder / "one", plan_of([program], [["a"] * len(steps)]))
    with Runtime(alone, backend="cpu") as runtime:
        inputs = inputs_of(runtime)
        known = [
            [digest(runtime.submit(inputs, sequence=n).result(LIMIT_S)) for _ in range(KNOWN)]
            for n in (0, 1)
        ]
    return paths, known


def running_case(kind: str, rng: random.Random, hosts: Hosts, path: str, known: list) -> Row:
    """A fault while requests are under way."""
    if kind == "daemon":
        hosts.start_daemons()
    kept = hosts.kept[kind if kind in hosts.kept else "plain"]
    begun = time.monotonic()
    runtime = Runtime(path, hosts=kept)
    start_s = time.monotonic() - begun
    (backend,) = backends_of(runtime)
    assert isinstance(backend, HostsBackend)
    links = dict(backend._links)
    feed = Feed(runtime, known)
    time.sleep(rng.uniform(0.0, 0.6))
    device = rng.choice(list(links))
    host = links[device].host.name
    cable = hosts.places[["left", "right"].index(host)][0]
    moment = time.monotonic()
    match kind:
        case "kill":
            os.kill(links[device].process.pid, signal.SIGKILL)
        case "stop":
            os.kill(links[device].process.pid, signal.SIGSTOP)
        case "cut":
            ip("-n", cable, "link", "set", "eth0", "down")
        case "daemon":
            hosts.daemons[host].kill()
        case "disk":
            (hosts.disk / "more").write_bytes(b"")
            with (hosts.disk / "more").open("wb") as stream:
                try:
                    while stream.write(b"x" * 65536):
                        stream.flush()
                except OSError:
                    pass
            time.sleep(1.0)
            feed.stop = True
    lost = feed.wait()
    runtime.close(wait=False)
    if kind == "cut":
        ip("-n", cable, "link", "set", "eth0", "up")
    time.sleep(0.1)
    if kind == "disk":
        (hosts.disk / "more").unlink()
    texts = [said(problem) for _, problem in feed.failures]
    wanted = {"kill": f"device `{device}` on host `{host}`", "stop": f"device `{device}` on host"}
    wanted |= {"daemon": f"on host `{host}`", "cut": "on host `"}
    expected = 0 if kind == "disk" else 2
    named = all(wanted[kind] in text for text in texts) if expected else True
    return {"start_s": round(start_s, 3), **feed.row(moment, lost, expected), "named": named}


def said(problem: BaseException) -> str:
    """The headlines and notes of an error."""
    if isinstance(problem, ServiceFault | TesseraError):
        return "\n".join(line for d in problem.diagnostics for line in (str(d.headline), *d.notes))
    return f"{type(problem).__name__}: {problem}"


def start_case(kind: str, hosts: Hosts, path: str) -> Row:
    """A process that must not take part."""
    begun = time.monotonic()
    try:
        Runtime(path, hosts=hosts.wrong[kind]).close()
        text = ""
    except TesseraError as problem:
        text = said(problem)
    words = {"version": "host `right` has version 99.1", "token": "token"}[kind]
    return {
        "seconds": round(time.monotonic() - begun, 3),
        "named": words in text and "right" in text,
        "as_expected": bool(text),
        "said": text.splitlines()[0] if text else "",
    }


def driver_case(rng: random.Random, hosts: Hosts, path: str) -> Row:
    """The driver ends."""
    command = [sys.executable, "-m", "benchmarks.hosts.faults", "drive", path, hosts.plain]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    at = "running"
    if rng.random() < 0.3:
        at = "starting"
        time.sleep(rng.uniform(1.0, 6.0))
    else:
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 1.0))
    how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    moment = time.monotonic()
    process.send_signal(how)
    while (left := hosts.processes()) and time.monotonic() - moment < LIMIT_S:
        time.sleep(0.02)
    seconds = time.monotonic() - moment
    if left:
        process.kill()
    code = process.wait(LIMIT_S)
    return {
        "how": how.name,
        "at": at,
        "seconds": round(seconds, 3),
        "code": code,
        "as_expected": not left,
        "named": True,
    }


def drive(path: str, hosts: str) -> None:
    """Be the driver."""
    with Runtime(path, hosts=hosts) as runtime:
        inputs = inputs_of(runtime)
        print("ready", flush=True)
        while True:
            runtime.submit(inputs).result(LIMIT_S)


def run(options: argparse.Namespace) -> None:
    """Do the cases."""
    with namespaces(2) as places, tempfile.TemporaryDirectory() as name:
        paths, known = make_plans(Path(name))
        hosts = Hosts(Path(name), places)

        def case(kind: str, rng: random.Random, path: str) -> Row:
            try:
                match kind:
                    case "version" | "token":
                        row = start_case(kind, hosts, path)
                    case "driver":
                        row = driver_case(rng, hosts, path)
                    case _:
                        row = running_case(kind, rng, hosts, path, known)
            finally:
                time.sleep(0.2)
            return row | {"left": len(hosts.processes())}

        try:
            for seed in seeds(options):
                kind = TURNS[seed % len(TURNS)]
                path = paths[2 if kind in ("daemon", "driver") else 3]
                row: Row = {"seed": seed, "kind": kind}
                do_case(options, row, partial(case, kind, random.Random(seed), path))
        finally:
            hosts.close()


def report(options: argparse.Namespace) -> None:
    """What was done, by kind, and what was late or not as expected."""
    rows = rows_of(options)
    kinds: dict[str, Row] = {}
    for kind in sorted({row["kind"] for row in rows}):
        own = [row for row in rows if row["kind"] == kind and "error" not in row]
        times = sorted(row["seconds"] for row in own)
        kinds[kind] = {
            "cases": len(own),
            "as_expected": sum(row["as_expected"] for row in own),
            "named": sum(row["named"] for row in own),
            "operation_named": sum(row.get("operation", True) for row in own),
            "median_s": statistics.median_high(times or [0.0]),
            "most_s": max(times, default=0.0),
        }
        if kind in IN_TIME_S:
            kinds[kind]["limit_s"] = IN_TIME_S[kind]
            kinds[kind]["in_time"] = sum(seconds <= IN_TIME_S[kind] for seconds in times)
    timed = [row for row in rows if row["kind"] in IN_TIME_S and "error" not in row]
    late = [row for row in timed if row["seconds"] > IN_TIME_S[row["kind"]]]
    bad = [
        row
        for row in rows
        if "error" in row or not (row["as_expected"] and row["named"]) or row["left"]
    ]
    value: Row = {
        "faults": len(rows),
        "of_a_daemon_or_the_driver": sum(row["kind"] in ("daemon", "driver") for row in rows),
        "in_time": len(timed) - len(late),
        "timed": len(timed),
        "hung_or_lost": sum(row.get("lost", 0) for row in rows),
        "outputs": sum(row.get("good", 0) for row in rows),
        "wrong_outputs": sum(row.get("wrong", 0) for row in rows),
        "processes_left": sum(row.get("left", 0) for row in rows),
        "kinds": kinds,
        "late": late,
        "not_as_expected": bad,
    }
    write_report(options, rows, value)


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2], sys.argv[3])
        return
    act(command_line(__doc__, ["run"], 300), run, report)


if __name__ == "__main__":
    main()
