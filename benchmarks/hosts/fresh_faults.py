"""Faults of other kinds than those of `faults`, in runs over hosts at random moments.

    python -m benchmarks.hosts.fresh_faults run --count 60 -o out/host_faults_fresh.jsonl
    python -m benchmarks.hosts.fresh_faults report out/host_faults_fresh.jsonl -o FILE

Needs root, `ip` and `tc`: hosts are network namespaces. Requests copy 256 KiB from host
to host several times. These must be named in time:

- `vanish`: the port of a host leaves the bridge; its own end stays up (a half-open connection)
- `oneway`: packets to one host are lost, those from it are not
- `address`: a host loses its address
- `frozen`: all processes of a host are stopped

and these must not end anything:

- `slow`: the link of a host is slow for seconds: 256 KiB take more than 2 s
- `blip`: a process is stopped for less than `silent`
- `pause`: the driver is stopped for 3 s
- `stranger`: somebody connects to the ports of a host and sends noise
- `parent`: the shell that started a process is killed; the process itself goes on

`outputs`: the disk of the driver is full when `tessc run --outputs` writes: one error, and no part
of a file. Columns are those of `benchmarks.hosts.faults`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.hosts.cases import Row, act, command_line, do_case, seeds
from benchmarks.hosts.faults import Feed, digest, report, said
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.run.runtime import Runtime
from tessera.frontend.trace.read_trace import parse_trace
from tests.helpers.host_runs import backends_of, inputs_of
from tests.helpers.namespaces import PREFIX, hosts_in, ip, namespaces, processes_in
from tests.helpers.plan_files import plan_of, write_plan

ENDS = ("vanish", "oneway", "address", "frozen")
GOES_ON = ("slow", "blip", "pause", "stranger", "parent")
KINDS = (*ENDS, *GOES_ON, "outputs")
NAMES = ["left", "right"]
BYTES = 1 << 18
STEPS = 7
LIMIT_S = 40.0
SLOW = "800kbit"


def copies() -> str:
    """A trace that copies its input from buffer to buffer."""
    names = ["x", *(f"t{n}" for n in range(STEPS - 1)), "y"]
    roles = ["input", *["temp"] * (STEPS - 1), "output"]
    buffers = [
        f"//! buffer {name} bytes={BYTES} role={role} dtype=f32 shape={BYTES // 4}\n"
        for name, role in zip(names, roles, strict=True)
    ]
    steps = [f"//! memcpy {to} {of} bytes={BYTES}\n" for of, to in itertools.pairwise(names)]
    return "".join(["//! tessera.trace 1\n", *buffers, *steps])


class Hosts:
    """Two namespaces, the plan, and processes that are kept."""

    def __init__(self, folder: Path, places: list[tuple[str, str]]) -> None:
        self.folder, self.places = folder, places
        program = parse_trace(copies(), "copies.ptx")
        steps = ["ab"[n % 2] for n in range(STEPS)]
        self.plan = write_plan(
            folder, plan_of([program], [steps], hosts={"a": "left", "b": "right"})
        )
        self.plain = hosts_in(folder, NAMES, places)
        (folder / "shell").mkdir()
        self.shell = hosts_in(folder / "shell", NAMES, places)
        text = Path(self.shell).read_text()
        # Not replaced by what it runs: two commands.
        shell = r"sh -c '\"$@\"; true' sh ip netns exec"
        Path(self.shell).write_text(text.replace("ip netns exec", shell))
        self.kept = KeptHosts(self.plain)
        self.full = folder / "full"
        self.full.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(self.full)]
        subprocess.run(words, check=True)

    def outside(self, number: int) -> str:
        """The port of a host on the bridge."""
        return f"to{os.getpid() % 10000}x{number}"

    def left_over(self) -> int:
        """Processes that are not kept."""
        there = {n for name, _ in self.places for n in processes_in(name)}
        return len(there - set(self.kept.processes()))

    def close(self) -> None:
        """End everything."""
        self.kept.close()
        subprocess.run(["umount", str(self.full)], check=True)


BRIDGE = f"{PREFIX}b"


def tool(place: str, *words: str) -> None:
    """Run a command in a namespace."""
    subprocess.run(["ip", "netns", "exec", place, *words], check=True, capture_output=True)


class Fault:
    """One fault at a host, and its end."""

    def __init__(self, kind: str, hosts: Hosts, number: int, processes: list[int]) -> None:
        self.kind, self.hosts, self.number, self.processes = kind, hosts, number, processes
        self.place, self.at = hosts.places[number]
        self.port = hosts.outside(number)

    def begin(self, rng: random.Random) -> None:
        """Let it happen; what does not last is over when this returns."""
        match self.kind:
            case "vanish":
                ip("-n", BRIDGE, "link", "set", self.port, "nomaster")
            case "oneway":
                self._learn("replace")
            case "address":
                ip("-n", self.place, "addr", "del", f"{self.at}/24", "dev", "eth0")
            case "frozen":
                for process in processes_in(self.place):
                    os.kill(process, signal.SIGSTOP)
            case "slow":
                tbf = ["rate", SLOW, "burst", "4kb", "limit", "1mb"]
                tool(self.place, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *tbf)
                time.sleep(6.0)
                tool(self.place, "tc", "qdisc", "del", "dev", "eth0", "root")
            case "blip":
                process = rng.choice(self.processes)
                os.kill(process, signal.SIGSTOP)
                time.sleep(rng.uniform(0.2, 0.9))
                os.kill(process, signal.SIGCONT)
            case "stranger":
                self._make_noise(rng)
            case "parent":
                os.kill(self.processes[self.number], signal.SIGKILL)
                time.sleep(1.0)

    def end(self) -> None:
        """The cable is whole again."""
        match self.kind:
            case "vanish":
                ip("-n", BRIDGE, "link", "set", self.port, "master", "br0")
            case "oneway":
                self._learn("del")
            case "address":
                ip("-n", self.place, "addr", "add", f"{self.at}/24", "dev", "eth0")

    def _learn(self, what: str) -> None:
        """The other host believes that this one has another card, or learns."""
        other = self.hosts.places[1 - self.number][0]
        wrong = ["lladdr", "02:00:00:00:00:01", "nud", "permanent"] if what == "replace" else []
        ip("-n", other, "neigh", what, self.at, "dev", "eth0", *wrong)

    def _make_noise(self, rng: random.Random) -> None:
        listed = subprocess.run(
            ["ip", "netns", "exec", self.place, "ss", "-Hltn"], capture_output=True, text=True
        )
        ports = {line.split()[3].rpartition(":")[2] for line in listed.stdout.splitlines()}
        code = (
            "import socket, sys\n"
            "for port in sys.argv[3:]:\n"
            "    s = socket.create_connection((sys.argv[1], int(port)), 2)\n"
            "    s.sendall(bytes.fromhex(sys.argv[2])); s.close()\n"
        )
        for _ in range(4):
            noise = rng.randbytes(rng.randint(1, 4000)).hex()
            place = rng.choice(self.hosts.places)[0]
            tool(place, sys.executable, "-S", "-c", code, self.at, noise, *ports)


def running_case(kind: str, rng: random.Random, hosts: Hosts) -> Row:
    """A fault while requests are under way."""
    runtime = Runtime(hosts.plan, hosts=hosts.shell if kind == "parent" else hosts.kept)
    (backend,) = backends_of(runtime)
    links = dict(backend._links)
    wanted = digest(runtime.submit(inputs_of(runtime)).result(LIMIT_S))
    feed = Feed(runtime, [[wanted] * 100_000] * 2)
    time.sleep(rng.uniform(0.0, 0.6))
    number = rng.randrange(2)
    fault = Fault(kind, hosts, number, [link.process.pid for link in links.values()])
    moment = time.monotonic()
    fault.begin(rng)
    if kind in GOES_ON:
        time.sleep(0.7)
        feed.stop = True
    lost = feed.wait()
    fault.end()
    runtime.close(wait=False)
    texts = [said(problem) for _, problem in feed.failures]
    named = all("on host `" in text and "device `" in text for text in texts)
    return {**feed.row(moment, lost, 2 if kind in ENDS else 0), "named": named}


def pause_case(rng: random.Random, hosts: Hosts) -> Row:
    """The driver is stopped for 3 s, and goes on."""
    command = [sys.executable, "-m", "benchmarks.hosts.fresh_faults", "drive"]
    process = subprocess.Popen(
        [*command, hosts.plan, hosts.plain],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(rng.uniform(0.0, 1.0))
    process.send_signal(signal.SIGSTOP)
    time.sleep(3.0)
    process.send_signal(signal.SIGCONT)
    text, errors = process.communicate(timeout=LIMIT_S)
    good, wrong = map(int, text.split()) if process.returncode == 0 else (0, 0)
    return {
        "seconds": 0.0,
        "good": good,
        "wrong": wrong,
        "as_expected": process.returncode == 0,
        "named": True,
        "said": errors.strip().splitlines()[-1] if errors.strip() else "",
    }


def drive(path: str, hosts: str) -> None:
    """Be the driver: some seconds of requests."""
    good = wrong = 0
    with Runtime(path, hosts=hosts) as runtime:
        inputs = inputs_of(runtime)
        known = digest(runtime.submit(inputs).result(LIMIT_S))
        print("ready", flush=True)
        deadline = time.monotonic() + 6.0
        while time.monotonic() < deadline:
            same = digest(runtime.submit(inputs).result(LIMIT_S)) == known
            good, wrong = good + same, wrong + (not same)
    print(good, wrong)


def outputs_case(rng: random.Random, hosts: Hosts) -> Row:
    """The disk of the driver is full."""
    path = hosts.full / "out.npz"
    filled = hosts.full / "filler"
    with filled.open("wb") as stream:
        stream.write(b"x" * rng.choice([0, 60_000, 98_000]))
    command = [sys.executable, "-m", "tessera", "run", hosts.plan, "--hosts", hosts.plain]
    done = subprocess.run(
        [*command, "--requests", "2", "--outputs", str(path)], capture_output=True, text=True
    )
    left = [name for name in os.listdir(hosts.full) if name != "filler"]
    filled.unlink()
    first = done.stderr.strip().splitlines()[0] if done.stderr.strip() else ""
    return {
        "seconds": 0.0,
        "as_expected": done.returncode not in (0, 70) and not left,
        "named": "error[TSR" in first and "out.npz" in first,
        "said": first,
    }


def run(options: argparse.Namespace) -> None:
    """Do the cases."""
    with namespaces(2) as places, tempfile.TemporaryDirectory() as name:
        hosts = Hosts(Path(name), places)

        def case(kind: str, rng: random.Random) -> Row:
            match kind:
                case "pause":
                    row = pause_case(rng, hosts)
                case "outputs":
                    row = outputs_case(rng, hosts)
                case _:
                    row = running_case(kind, rng, hosts)
            time.sleep(0.3)
            return row | {"left": hosts.left_over()}

        try:
            for seed in seeds(options):
                kind = options.kind or KINDS[seed % len(KINDS)]
                do_case(
                    options, {"seed": seed, "kind": kind}, partial(case, kind, random.Random(seed))
                )
        finally:
            hosts.close()


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2], sys.argv[3])
        return
    parser = command_line(__doc__, ["run"], 66)
    parser.add_argument("--kind", choices=KINDS, help="only these")
    act(parser, run, report)


if __name__ == "__main__":
    main()
