"""A process on a host that starts a node of a Ray cluster there, or ends one.

In: a record on standard input. Out: a record on standard output. The node goes on when this
process has ended: `ray start --block` in a session of its own, with a mark in its environment that
all its processes inherit, so that `down` finds them and no others.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tessera.backend.hosts.channel import ChannelClosed, ControlChannel, Head
from tessera.driver.hosts.device_process import standard_channel
from tessera.ir.version import __version__
from tessera.settings import with_environment

MARK = "TESSERA_CLUSTER"
_START_S = 90.0
_END_S = 8.0
_STARTED = "Ray runtime started"
_LATE = "timed out during startup"
_STORE_BYTES = 100_000_000
# On a busy machine its helpers take longer to start than Ray waits for them, and longest for those
# that have to say at which port they are.
_PATIENT = {"RAY_agent_register_timeout_ms": "100000"}
_PORTS = (
    "--dashboard-agent-grpc-port",
    "--dashboard-agent-listen-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
)


def main() -> None:
    """Do what the driver says, once."""
    channel = standard_channel()
    with suppress(ChannelClosed):
        channel.start()
        channel.send({"kind": "hello", "version": __version__, "pid": os.getpid()})
        head, _ = channel.receive()
        while head["kind"] not in ("up", "down"):
            head, _ = channel.receive()
        answer = _up(head) if head["kind"] == "up" else _down(head)
        channel.send(answer)
        _await_end(channel)


def _await_end(channel: ControlChannel) -> None:
    while True:
        channel.receive()


def _up(head: Head) -> Head:
    """Start a node; its address where it is the head, its process and its last words."""
    try:
        import ray  # noqa: F401
    except ImportError:
        return {"kind": "failed", "why": "the package `ray` is not installed", "install": True}
    answer = _start(head)
    if answer["kind"] == "failed" and _LATE in answer["why"]:
        answer = _start(head)
    return answer


def _start(head: Head) -> Head:
    bind, folder = str(head["bind"]), tempfile.mkdtemp(prefix=_folder(str(head["mark"])))
    address = str(head["address"]) or f"{_bracketed(bind)}:{_free_port(bind)}"
    words = ["--address", address]
    if not head["address"]:
        port = address.rpartition(":")[2]
        words = ["--head", "--port", port, "--include-dashboard=false", "--temp-dir", folder]
    log = Path(folder) / "start.log"
    environment = {MARK: str(head["mark"]), "RAY_DISABLE_USAGE_STATS": "1", **_PATIENT}
    if head["token"]:
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": str(head["token"])}
    with log.open("wb") as said:
        node = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", *words),
                *("--node-ip-address", bind, "--labels", str(head["label"])),
                *("--num-cpus", "1", "--object-store-memory", str(_STORE_BYTES)),
                *(f"{option}={_free_port(bind)}" for option in _PORTS),
                *("--block", "--disable-usage-stats"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=with_environment(environment),
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if _STARTED in text:
            return {"kind": "up", "address": address, "pid": node.pid}
        if node.poll() is not None:
            break
        time.sleep(0.1)
    _end_all(str(head["mark"]))
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    late = f"it has not started within {_START_S:.0f} s"
    return {"kind": "failed", "why": lines[-1][:400] if lines else late, "install": False}


def _down(head: Head) -> Head:
    """End the processes of a node, and what they wrote; how many there were."""
    mark = str(head["mark"])
    ended = _end_all(mark)
    for left in Path(tempfile.gettempdir()).glob(_folder(mark) + "*"):
        shutil.rmtree(left, ignore_errors=True)
    return {"kind": "down", "ended": ended}


def _folder(mark: str) -> str:
    return f"tessera-ray-{mark}-"


def _end_all(mark: str) -> int:
    """End all processes with a mark: first kindly, then for certain."""
    sessions: set[int] = set()
    began = _members(mark, sessions)
    for pid in began:
        with suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline and _members(mark, sessions):
        time.sleep(0.1)
    while left := _members(mark, sessions):
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return len(began)


def _members(mark: str, sessions: set[int]) -> list[int]:
    """The processes of a node: those with the mark, and those of their sessions.

    Helpers of Ray write their title over their environment; they have the session of the others.
    """
    wanted = f"{MARK}={mark}".encode()
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                session = os.getsid(int(entry.name))
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    sessions.add(session)
                found[int(entry.name)] = session
    sessions.discard(os.getsid(0))
    return [pid for pid, session in found.items() if session in sessions and not _is_dead(pid)]


def _is_dead(pid: int) -> bool:
    """Whether nobody has asked yet how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _free_port(bind: str) -> int:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((bind, 0))
        port: int = probe.getsockname()[1]
        return port


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


if __name__ == "__main__":
    main()
