"""The transport between hosts by NIXL: one-sided writes that carry their note.

In: a window, the memory that puts come from, and a token. Out: a `Transport`. Both memories are
registered once. `connect` prepares the descriptors of every planned put, so nothing is allocated
later.

A socket connection is kept beside NIXL. It proves the token before any byte is accepted, tells a
peer that only waits that the other is gone, and detects a cut cable: UCX reports errors only to the
side that posts. Peers of the same host are reached by shared memory. The thread of UCX is off: this
end polls for notes itself, less often the longer it is idle.
"""

from __future__ import annotations

import base64
import importlib
import json
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Protocol

from tessera.backend.transports.shared_memory import SharedMemoryTransport
from tessera.backend.transports.transport import (
    Hear,
    Lose,
    PlannedPut,
    Transport,
    TransportFault,
    TransportPlace,
    WindowBytes,
)
from tessera.settings import set_default

_MODULES = ("nixl_cu12._api", "nixl_cu13._api")
_DEVICES = "UCX_NET_DEVICES"
_LOOK_S = ((0.002, 2e-5), (0.05, 1e-4), (float("inf"), 5e-4))
"""Poll intervals by idle time: pairs of the longest idle time and the interval, in seconds."""
_SPINS = 50
_Key = tuple[str, int, int, int]


class _NixlHandle(Protocol):
    def release(self) -> None: ...


def missing_nixl() -> str:
    """The reason why NIXL cannot be used here; empty if it can."""
    try:
        _nixl()
    except ImportError as problem:
        return str(problem)
    return ""


class NixlTransport(SharedMemoryTransport):
    """Writes into the registered windows of peers on other hosts."""

    def __init__(
        self,
        place: TransportPlace,
        window: WindowBytes,
        descriptor: int,
        outgoing: WindowBytes,
        hear: Hear,
        lose: Lose,
    ) -> None:
        self._gone: dict[str, str] = {}
        self._lose_peer = lose
        self._agent_lock = threading.Lock()
        self._outgoing = outgoing
        self._registered = window
        self._agents: dict[str, str] = {}
        self._puts: dict[_Key, _NixlHandle] = {}
        self._prepared: list[_NixlHandle] = []
        self._memory: list[object] = []
        self._looking: threading.Thread | None = None
        self._active_s = time.monotonic()
        network = interface_of(place.bind)
        if network:
            set_default(_DEVICES, network)
        module = _nixl()
        config = module.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
        self._agent = module.nixl_agent(f"{place.run} {place.name}", config)
        for memory in (window, outgoing):
            if memory.nbytes:
                row = (memory.ctypes.data, memory.nbytes, 0, "")
                self._memory.append(self._agent.register_memory([row], "DRAM"))
        super().__init__(place, window, descriptor, outgoing, hear, self._lost_one)

    @property
    def address(self) -> str:
        """The registration of the window, and the metadata to reach its agent."""
        metadata = base64.b64encode(self._agent.get_agent_metadata()).decode()
        return json.dumps([metadata, self._registered.ctypes.data, super().address])

    def connect(self, peers: Mapping[str, str], puts: Sequence[PlannedPut] = ()) -> None:
        """Greet peers by socket, join the agents, and prepare every put."""
        given = {peer: json.loads(address) for peer, address in peers.items()}
        super().connect({peer: str(address[2]) for peer, address in given.items()})
        try:
            for peer, (metadata, base, _) in given.items():
                if peer not in self._mapped:
                    planned = [put for put in puts if put.peer == peer]
                    self._prepare(peer, base64.b64decode(metadata), int(base), planned)
        except Exception as problem:  # NIXL's exceptions have no common base
            raise TransportFault(peer, f"NIXL cannot join it: {_words(problem)}") from None
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def _prepare(self, peer: str, metadata: bytes, base: int, puts: Sequence[PlannedPut]) -> None:
        agent = self._agent
        name = agent.add_remote_agent(metadata)
        name = name if isinstance(name, str) else name.decode()
        agent.make_connection(name)
        self._agents[name] = peer
        if not puts:
            return
        here = [(put.content.ctypes.data, put.content.nbytes, 0) for put in puts]
        there = [(base + put.offset, put.content.nbytes, 0) for put in puts]
        local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", here, "DRAM")
        remote = agent.prep_xfer_dlist(name, there, "DRAM")
        self._prepared += [local, remote]
        for number, put in enumerate(puts):
            self._puts[_key(put.peer, put.offset, put.content)] = agent.make_prepped_xfer(
                "WRITE", local, [number], remote, [number]
            )

    def put(self, peer: str, offset: int, content: WindowBytes, note: bytes) -> None:
        """Write into the registered window of a peer; the note arrives after the last byte."""
        if peer in self._mapped:
            super().put(peer, offset, content, note)
            return
        self._active_s = time.monotonic()
        handle = self._puts[_key(peer, offset, content)]
        try:
            with self._agent_lock:
                state = self._agent.transfer(handle, note)
            spins = 0
            while state == "PROC":
                self._refuse_gone(peer)
                time.sleep(0 if spins < _SPINS else _LOOK_S[0][1])
                spins += 1
                with self._agent_lock:
                    state = self._agent.check_xfer_state(handle)
        except OSError:
            raise
        except Exception as problem:  # as in `connect`
            raise self._fault(peer, problem) from None
        if state != "DONE":
            raise TransportFault(peer, "a write by NIXL has failed")

    def tell(self, peer: str, note: bytes) -> None:
        """Send a note without bytes."""
        if peer in self._mapped:
            super().tell(peer, note)
            return
        self._refuse_gone(peer)
        self._active_s = time.monotonic()
        name = next(agent for agent, own in self._agents.items() if own == peer)
        try:
            with self._agent_lock:
                self._agent.send_notif(name, note)
        except Exception as problem:  # as in `connect`
            raise self._fault(peer, problem) from None

    def _look(self) -> None:
        """Poll for notes; a poll also makes progress on writes under way."""
        while not self._is_closed:
            with self._agent_lock:
                if self._is_closed:
                    return
                notes = self._agent.get_new_notifs()
            now_s = time.monotonic()
            for agent, texts in notes.items():
                name = agent if isinstance(agent, str) else agent.decode()
                peer = self._agents.get(name)
                for text in texts if peer is not None else ():
                    assert peer is not None
                    self._hear(peer, bytes(text))
                self._active_s = now_s
            idle_s = now_s - self._active_s
            time.sleep(next(pause for limit, pause in _LOOK_S if idle_s < limit))

    def _lost_one(self, peer: str, why: str, *, is_cut: bool = False) -> None:
        self._gone[peer] = why
        self._lose_peer(peer, why, is_cut=is_cut)

    def _refuse_gone(self, peer: str) -> None:
        if self._is_closed:
            raise TransportFault(peer, "the transport is closed")
        if peer in self._gone:
            raise TransportFault(peer, self._gone[peer])

    def _fault(self, peer: str, problem: Exception) -> TransportFault:
        return TransportFault(peer, self._gone.get(peer) or f"NIXL: {_words(problem)}")

    def close(self) -> None:
        """Close the connections, and release registered memory."""
        super().close()
        if self._looking is not None and self._looking is not threading.current_thread():
            self._looking.join(1.0)
        with self._agent_lock:
            for held in [*self._puts.values(), *self._prepared]:
                with suppress(Exception):
                    held.release()
            self._puts.clear()
            self._prepared.clear()
            for memory in self._memory:
                with suppress(Exception):
                    self._agent.deregister_memory(memory)
            self._memory.clear()


def interface_of(address: str) -> str:
    """The name of the network device that has an address; empty if unknown."""
    if ":" in address:
        return _interface_of_6(address)
    try:
        import fcntl
    except ImportError:
        return ""
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with suppress(OSError):
                if fcntl.ioctl(probe.fileno(), 0x8915, request)[20:24] == wanted:  # SIOCGIFADDR
                    return name
    return ""


def _interface_of_6(address: str) -> str:
    wanted = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
    with suppress(OSError), open("/proc/net/if_inet6") as rows:
        for row in rows:
            words = row.split()
            if words[0] == wanted:
                return words[-1]
    return ""


def _key(peer: str, offset: int, content: WindowBytes) -> _Key:
    return peer, offset, content.ctypes.data, content.nbytes


def _words(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[-1]


def _nixl() -> ModuleType:
    """The module of NIXL; raises `ImportError` if it is not installed."""
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as problem:
            if problem.name not in (name, name.partition(".")[0]):
                raise
    raise ImportError("the package `nixl-cu12` is not installed")


_: type[Transport] = NixlTransport
