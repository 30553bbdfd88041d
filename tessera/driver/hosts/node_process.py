"""A process on a host that starts a node of a Ray cluster there, or ends one.

In: a message on standard input. Out: a message on standard output. The node continues after this
process has ended: it is `ray start --block` in a session of its own, with a mark in its environment
that all its processes inherit, so that `down` finds exactly these processes.
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

import msgspec

from tessera.backend.hosts.channel import ChannelClosed
from tessera.backend.hosts.messages import Hello
from tessera.backend.processes.messages import Message
from tessera.driver.hosts.device_process import standard_channel
from tessera.ir.version import __version__
from tessera.settings import with_environment

MARK = "TESSERA_CLUSTER"
_START_S = 90.0
_END_S = 8.0
_STARTED = "Ray runtime started"
_LATE = "timed out during startup"
_STORE_BYTES = 100_000_000
# On a busy machine the helpers of Ray start more slowly than Ray waits for them, above all those
# that have to report their port. Fixed ports and this limit avoid that.
_PATIENT = {"RAY_agent_register_timeout_ms": "100000"}
_PORTS = (
    "--dashboard-agent-grpc-port",
    "--dashboard-agent-listen-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
)


class NodeUp(Message, frozen=True):
    """To a host: start a node. Without a cluster address, it is the head of a new cluster."""

    bind: str
    address: str
    label: str
    token: str
    mark: str


class NodeDown(Message, frozen=True):
    """To a host: end the node with a mark."""

    mark: str


class NodeRuns(Message, frozen=True):
    """From a host: the address of the cluster, and the id of the process that keeps the node."""

    address: str
    pid: int


class NodeFailed(Message, frozen=True):
    """From a host: no node runs. `is_late`: Ray gave up waiting; `install`: Ray is missing."""

    why: str
    is_late: bool = False
    install: bool = False


class NodeEnded(Message, frozen=True):
    """From a host: the number of processes that were ended."""

    ended: int


TO_NODE: msgspec.json.Decoder[NodeUp | NodeDown] = msgspec.json.Decoder(NodeUp | NodeDown)
FROM_NODE: msgspec.json.Decoder[Hello | NodeRuns | NodeFailed | NodeEnded] = msgspec.json.Decoder(
    Hello | NodeRuns | NodeFailed | NodeEnded
)


def main() -> None:
    """Serve the message of the driver, once."""
    channel = standard_channel(TO_NODE)
    with suppress(ChannelClosed):
        channel.start()
        channel.send(Hello(__version__, os.getpid()))
        asked, _ = channel.receive()
        channel.send(_up(asked) if isinstance(asked, NodeUp) else _down(asked))
        while True:  # until the driver hangs up
            channel.receive()


def _up(asked: NodeUp) -> NodeRuns | NodeFailed:
    """Start a node; try once more if Ray gave up waiting for its helpers."""
    try:
        import ray  # noqa: F401
    except ImportError:
        return NodeFailed("the package `ray` is not installed", install=True)
    answer = _start(asked)
    return _start(asked) if isinstance(answer, NodeFailed) and answer.is_late else answer


def _start(asked: NodeUp) -> NodeRuns | NodeFailed:
    bind, folder = asked.bind, tempfile.mkdtemp(prefix=_folder(asked.mark))
    address = asked.address or f"{_bracketed(bind)}:{_free_port(bind)}"
    words = ["--address", address]
    if not asked.address:
        port = address.rpartition(":")[2]
        words = ["--head", "--port", port, "--include-dashboard=false", "--temp-dir", folder]
    log = Path(folder) / "start.log"
    environment = {MARK: asked.mark, "RAY_DISABLE_USAGE_STATS": "1", **_PATIENT}
    if asked.token:
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": asked.token}
    with log.open("wb") as said:
        node = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", *words),
                *("--node-ip-address", bind, "--labels", asked.label),
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
            return NodeRuns(address, node.pid)
        if node.poll() is not None:
            break
        time.sleep(0.1)
    _end_all(asked.mark)
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    why = lines[-1] if lines else f"it has not started within {_START_S:.0f} s"
    return NodeFailed(why[:400], is_late=_LATE in why)


def _down(asked: NodeDown) -> NodeEnded:
    """End the processes of a node, and remove their files; returns the number of processes."""
    ended = _end_all(asked.mark)
    for left in Path(tempfile.gettempdir()).glob(_folder(asked.mark) + "*"):
        shutil.rmtree(left, ignore_errors=True)
    return NodeEnded(ended)


def _folder(mark: str) -> str:
    return f"tessera-ray-{mark}-"


def _end_all(mark: str) -> int:
    """End all processes with a mark, by SIGTERM and then SIGKILL; returns their number."""
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

    Helpers of Ray overwrite their environment with their title, but share the session of the
    others.
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
    """Whether a process is gone, or has ended and waits for its parent (a zombie)."""
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
