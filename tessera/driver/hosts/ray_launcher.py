"""Device processes as actors of an existing Ray cluster.

In: the address of the cluster. Out: a launcher, for `LinkPool`. An actor is placed on the node
whose label `tessera-host` is the name of the host, or else on the node with the address of the
host. The driver then connects to it, and both prove a token that was sent through Ray. From then on
all messages use that connection, and no request makes a call of Ray. Only actors that were started
here are ended, never the cluster.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import queue
import re
import secrets
import socket
import threading
import time
from contextlib import suppress
from types import ModuleType
from typing import Any

from tessera.backend.transports.proved_links import call_proved
from tessera.backend.transports.transport import TransportFault
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.driver.hosts.device_actor import DRIVER, DeviceActor
from tessera.driver.hosts.running_cluster import RunningCluster
from tessera.ir.plan.hosts import INSTALL_HOSTS, HostEntry
from tessera.settings import overridden, set_default

LABEL = "tessera-host"
_PRIVATE = "ray._private"
_PLAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_REACH_S = 5.0
_START_S = 60.0
_JOIN_S = 40.0
_GREET_S = 10.0


def label_of(name: str) -> str:
    """The label of a host's node; a digest if the name has characters that Ray does not accept."""
    if _PLAIN.match(name):
        return name
    return "x" + hashlib.sha256(name.encode()).hexdigest()[:16]


class RayDevice:
    """An actor, as the driver sees it."""

    def __init__(self, ray: ModuleType, actor: Any, link: socket.socket, pid: int) -> None:
        self.pid = pid
        self._ray, self._actor, self._link = ray, actor, link
        self._serving: Any = None
        self._is_ended = False

    def served_by(self, serving: Any) -> None:
        """Set the Ray call that ends with the actor."""
        self._serving = serving

    @property
    def source(self) -> int:
        """The descriptor of the connection."""
        return self._link.fileno()

    @property
    def target(self) -> int:
        """The descriptor of the connection."""
        return self._link.fileno()

    def poll(self) -> int | None:
        """1 if Ray reports that the actor has ended."""
        return 1 if self._is_over(0.0) else None

    def wait(self, limit_s: float) -> str:
        """How the actor ended, as the rest of a sentence."""
        if not self._is_over(limit_s):
            return "has closed its channel"
        try:
            self._ray.get(self._serving, timeout=_REACH_S)
        except Exception as problem:  # Ray raises what the actor raised, or why it is gone
            return f"was ended: {type(problem).__name__}"
        return "ended"

    def _is_over(self, limit_s: float) -> bool:
        try:
            return bool(self._ray.wait([self._serving], timeout=limit_s)[0])
        except Exception:  # the cluster itself is gone
            return True

    def said(self) -> str:
        """The last line of Ray's message about the actor."""
        if self._is_over(0.0):
            try:
                self._ray.get(self._serving, timeout=_REACH_S)
            except Exception as problem:  # as in `wait`
                return _last_line(problem)
        return ""

    def close_source(self) -> None:
        """Close the reading end."""
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RD)

    def close_target(self) -> None:
        """Close the writing end, so that the actor ends."""
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def end(self, limit_s: float) -> None:
        """End the actor."""
        if self._is_ended:
            return
        self._is_ended = True
        if not self._is_over(limit_s):
            with suppress(Exception):
                self._ray.kill(self._actor, no_restart=True)
        with suppress(OSError):
            self._link.close()


class RayLauncher:
    """Starts actors on a cluster. `close` leaves the cluster running."""

    def __init__(self, cluster: RunningCluster) -> None:
        """Join the cluster; raises one error if that fails."""
        self._cluster = cluster
        self._token, self._run = secrets.token_hex(32), secrets.token_hex(8)
        set_default("RAY_AUTH_MODE", "token")
        set_default("RAY_DISABLE_USAGE_STATS", "1")
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": cluster.token} if cluster.token else {}
        with overridden(own):
            self._ray = _ray()
            self._joined_here = not self._ray.is_initialized()
            if self._joined_here:
                self._join()

    def _join(self) -> None:
        address = self._cluster.address
        if address != "auto":
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
            except OSError as problem:
                reason = (problem.strerror or str(problem)).lower()
                raise _refused(f"no cluster answers at `{address}`: {reason}") from None
        _hush()
        answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        # If only one end uses TLS, Ray tries for minutes.
        threading.Thread(target=self._init, args=(answers,), daemon=True).start()
        try:
            answer = answers.get(timeout=_JOIN_S)
        except queue.Empty:
            answer = TimeoutError(f"it has not answered within {_JOIN_S:.0f} s")
        if answer is None:
            return
        if isinstance(answer, self._wrong_token):
            raise _refused(
                f"the Ray cluster at `{address}` refuses the token of this command: it is wrong or "
                "missing",
                "set `RAY_AUTH_TOKEN` to the token of the cluster, or give `--address` the file "
                "that `tessc cluster up` wrote",
            )
        raise _refused(
            f"the Ray cluster at `{address}` cannot be joined: {_last_line(answer)}",
            "run this on a node of the cluster, with its token (`RAY_AUTH_TOKEN`; "
            "`RAY_AUTH_MODE=disabled` if it has none), and with TLS if it has that",
        )

    @property
    def _wrong_token(self) -> tuple[type[Exception], ...]:
        """The exception of Ray for a wrong token, in versions that have one."""
        kind = getattr(importlib.import_module("ray.exceptions"), "AuthenticationError", None)
        return () if kind is None else (kind,)

    def _init(self, answers: queue.SimpleQueue[Exception | None]) -> None:
        """Join the cluster; the answer is the error, or None."""
        try:
            self._prove_token()
            self._ray.init(
                address=self._cluster.address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False,
            )
        except Exception as problem:  # raised by the thread that waits for the answer
            answers.put(problem)
        else:
            answers.put(None)

    def _prove_token(self) -> None:
        """Query the cluster once: with a wrong token, `ray.init` would retry for half a minute."""
        try:
            setup = importlib.import_module(f"{_PRIVATE}.authentication.authentication_token_setup")
            setup.ensure_token_if_auth_enabled(create_token_if_missing=False)
            services = importlib.import_module(f"{_PRIVATE}.services")
            address = services.canonicalize_bootstrap_address(self._cluster.address)
            if address:
                importlib.import_module("ray._raylet").GcsClient(address=address)
        except self._wrong_token:
            raise
        except Exception:
            return  # another version of Ray, or `ray.init` reports the reason

    def __call__(self, host: HostEntry) -> RayDevice:
        """A connected actor on the node of a host."""
        ray = self._ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(node_id=self._node(host), soft=False)
        made = ray.remote(max_restarts=0, max_task_retries=0, num_cpus=0)(DeviceActor)
        actor = made.options(scheduling_strategy=place).remote()
        name = f"{host.name} {secrets.token_hex(4)}"
        try:
            heard = ray.get(actor.listen.remote(host.address), timeout=_START_S)
            serving = actor.serve.remote(name, self._token, self._run)
            link = self._call(host, int(heard["port"]), name)
        except BaseException as problem:
            with suppress(Exception):
                ray.kill(actor, no_restart=True)
            if isinstance(problem, TesseraError) or not isinstance(problem, Exception):
                raise
            raise _refused(
                f"Ray cannot start a process on host `{host.name}`: {_last_line(problem)}",
                "Tessera is installed on every node, in the same version; `address` in the file "
                "of hosts is one of the host's own",
            ) from None
        device = RayDevice(ray, actor, link, int(heard["pid"]))
        device.served_by(serving)
        return device

    def _call(self, host: HostEntry, port: int, name: str) -> socket.socket:
        answered, link = call_proved(
            (host.address, port),
            DRIVER,
            self._token,
            run=self._run,
            deadline_s=time.monotonic() + _GREET_S,
        )
        if answered != name:
            link.close()
            raise TransportFault(name, f"`{answered}` answers in its place")
        return link

    def _node(self, host: HostEntry) -> str:
        """The node of a host: by its label, or else by its address."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        wanted = label_of(host.name)
        labelled = [n for n in nodes if (n.get("Labels") or {}).get(LABEL) == wanted]
        chosen = labelled or [n for n in nodes if n["NodeManagerAddress"] == host.address]
        if len(chosen) == 1:
            return str(chosen[0]["NodeID"])
        what = "no node" if not chosen else f"{len(chosen)} nodes"
        having = "has" if not chosen else "have"
        raise _refused(
            f"{what} of the Ray cluster {having} the label `{LABEL}={wanted}` of host "
            f"`{host.name}`" + ("" if chosen else f", or its address `{host.address}`"),
            f"start its node with `ray start --labels {LABEL}={wanted}`, or all of them with "
            "`tessc cluster up`",
        )

    def close(self) -> None:
        """Leave the cluster."""
        if self._joined_here:
            with suppress(Exception):
                self._ray.shutdown()
        self._joined_here = False


def _ray() -> ModuleType:
    """The package `ray`; raises if it is not installed."""
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise _refused(
            "a cluster needs the package `ray`, which is not installed", INSTALL_HOSTS
        ) from None
    return ray


def _hush() -> None:
    """Stop Ray from reporting dead processes on standard output, which is for data.

    The fault of a run reports them. Ray has no setting for it.
    """
    worker = importlib.import_module(f"{_PRIVATE}.worker")
    if hasattr(worker, "print_to_stdstream"):
        setattr(worker, "print_to_stdstream", lambda *words, **named: None)  # noqa: B010


def _refused(headline: str, hint: str | None = None) -> TesseraError:
    return TesseraError(error("TSR5071", headline, hint=hint), ExitCode.NO_DEVICE)


def _last_line(problem: BaseException) -> str:
    lines = [line for line in str(problem).strip().splitlines() if line.strip()]
    return (lines[-1].strip() if lines else type(problem).__name__)[:400]
