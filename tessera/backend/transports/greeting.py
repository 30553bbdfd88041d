"""How two ends of a socket come to know each other: versions, names, and a token that both have.

In: a socket, this end's name, the token. Out: the peer's name, a `TransportFault` where it is no
peer, or another `OSError` where the connection ends or takes too long before that is known.

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
import time

from tessera.backend.transports.transport import TransportFault
from tessera.ir.version import __version__ as VERSION

_MAGIC = "tessera-transport/1"
_LEAST_S = 1e-3
_LONGEST_LINE = 4096
_STRANGER = "a stranger"
GREET_S = 5.0
"""How long a whole greeting may take, however its bytes come."""


def greet(
    link: socket.socket,
    name: str,
    token: str,
    *,
    is_caller: bool,
    run: str,
    limit_s: float = GREET_S,
) -> str:
    """The name of the peer, once both ends have shown that they have the token.

    `run` names what they take part in: ends of another run are strangers. A fault names nobody:
    what a stranger calls itself means nothing.
    """
    deadline_s = time.monotonic() + limit_s
    nonce = secrets.token_hex(16)
    _send(link, {"magic": _MAGIC, "version": VERSION, "name": name, "nonce": nonce, "run": run})
    theirs = _receive(link, deadline_s)
    peer, other = theirs.get("name", ""), theirs.get("nonce", "")
    if theirs.get("magic") != _MAGIC:
        raise TransportFault(_STRANGER, "it does not speak this protocol")
    if theirs.get("version") != VERSION:
        version = str(theirs.get("version"))[:40]
        raise TransportFault(
            _STRANGER, f"it has version {version} of Tessera, and this is {VERSION}"
        )
    if theirs.get("run") != run:
        raise TransportFault(_STRANGER, "it takes part in another run")
    _send(link, {"proof": _proof(token, name, peer, other, is_caller=is_caller)})
    wanted = _proof(token, peer, name, nonce, is_caller=not is_caller)
    given = _receive(link, deadline_s).get("proof", "")
    # As bytes: texts that are not ASCII cannot be compared so.
    if not hmac.compare_digest(given.encode(errors="replace"), wanted.encode()):
        raise TransportFault(_STRANGER, "it does not have the token of this run")
    return peer


def _proof(token: str, prover: str, judge: str, nonce: str, *, is_caller: bool) -> str:
    text = json.dumps([_MAGIC, prover, judge, nonce, is_caller])
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()


def _send(link: socket.socket, record: dict[str, str]) -> None:
    link.sendall(json.dumps(record).encode() + b"\n")


def _receive(link: socket.socket, deadline_s: float) -> dict[str, str]:
    line = b""
    while not line.endswith(b"\n"):
        left_s = deadline_s - time.monotonic()
        link.settimeout(max(left_s, _LEAST_S))
        try:
            if left_s <= 0:
                raise TimeoutError
            # What comes behind the line is for others to read.
            seen = link.recv(_LONGEST_LINE, socket.MSG_PEEK)
            line += link.recv(seen.find(b"\n") + 1 or len(seen))
        except TimeoutError:
            raise TimeoutError("it has not said in time who it is") from None
        if not seen or len(line) > _LONGEST_LINE:
            raise ConnectionError("it hung up before it said who it is")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not all(isinstance(v, str) for v in record.values()):
        raise TransportFault(_STRANGER, "it does not speak this protocol")
    return record
