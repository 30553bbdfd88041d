"""How two ends of a socket come to know each other: versions, names, and a token that both have.

In: a socket, this end's name, the token. Out: the peer's name, or a `TransportFault`.

Each end sends a line with its name, its version and a nonce, and answers the other's nonce with an
HMAC under the token. The token itself never travels here. Nothing is encrypted: a private network
is part of the contract.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket

from tessera.backend.transports.transport import TransportFault
from tessera.ir.version import __version__ as VERSION

_MAGIC = "tessera-transport/1"
_LONGEST_LINE = 4096


def greet(link: socket.socket, name: str, token: str, *, is_caller: bool, run: str) -> str:
    """The name of the peer, once both ends have shown that they have the token.

    `run` names what they take part in: ends of another run are strangers.
    """
    nonce = secrets.token_hex(16)
    _send(link, {"magic": _MAGIC, "version": VERSION, "name": name, "nonce": nonce, "run": run})
    theirs = _receive(link)
    peer, other = str(theirs.get("name", "")), str(theirs.get("nonce", ""))
    if theirs.get("magic") != _MAGIC:
        raise TransportFault(peer or "a stranger", "it does not speak this protocol")
    if theirs.get("version") != VERSION:
        version = str(theirs.get("version"))[:40]
        raise TransportFault(peer, f"it has version {version} of Tessera, and this is {VERSION}")
    if theirs.get("run") != run:
        raise TransportFault(peer, "it takes part in another run")
    _send(link, {"proof": _proof(token, name, peer, other, is_caller=is_caller)})
    wanted = _proof(token, peer, name, nonce, is_caller=not is_caller)
    if not hmac.compare_digest(str(_receive(link).get("proof", "")), wanted):
        raise TransportFault(peer or "a stranger", "it does not have the token of this run")
    return peer


def _proof(token: str, prover: str, judge: str, nonce: str, *, is_caller: bool) -> str:
    text = json.dumps([_MAGIC, prover, judge, nonce, is_caller])
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()


def _send(link: socket.socket, record: dict[str, str]) -> None:
    link.sendall(json.dumps(record).encode() + b"\n")


def _receive(link: socket.socket) -> dict[str, object]:
    line = b""
    while not line.endswith(b"\n"):
        letter = link.recv(1)
        if not letter or len(line) > _LONGEST_LINE:
            raise TransportFault("a stranger", "it hung up before it said who it is")
        line += letter
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise TransportFault("a stranger", "it does not speak this protocol")
    return record
