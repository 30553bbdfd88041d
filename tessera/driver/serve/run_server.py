"""The process of a server: its socket, TLS, connections, and an end at which no answer is lost.

In: a `CompletionServer`. Out: uvicorn runs it until SIGTERM or Ctrl-C, and then finishes the
requests under way. Clients have a few seconds to read what is made.
"""

from __future__ import annotations

import errno
import signal
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Protocol

from tessera.driver.serve.connections import Connections, PacedSocket, most_connections
from tessera.driver.serve.counted_log import counted_logs
from tessera.driver.serve.request_ids import request_ids, request_log
from tessera.driver.serve.server import CompletionServer, ServerOptions
from tessera.driver.serve.text import not_served

if TYPE_CHECKING:
    import uvicorn

_WATCH_S = 0.5
_TAKE_S = 10.0
"""Seconds that clients get to read finished answers during shutdown."""
_BACKLOG = 1024


class EndingServer(Protocol):
    """A server that can be asked to end, or to end at once."""

    should_exit: bool
    force_exit: bool


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket, opened before anything slow is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = PacedSocket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except (OSError, OverflowError, TypeError, ValueError) as problem:
        made.close()
        reason = getattr(problem, "strerror", None) or str(problem)
        is_taken = getattr(problem, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
        raise not_served(
            f"cannot listen on {host}, port {port}: {reason.lower()}",
            "choose another port with `--port`, or end what has this one"
            if is_taken
            else "`--host` takes an address of this machine, such as 127.0.0.1 or 0.0.0.0",
        ) from None
    return made


def server_config(server: CompletionServer, most: int) -> uvicorn.Config:
    """The configuration of uvicorn, with at most `most` connections."""
    application = server.application()
    try:
        import uvicorn
    except ImportError:
        raise not_served(
            "the package `uvicorn` is not installed", "pip install 'tessera-compiler[serve]'"
        ) from None
    connections = server.metrics.connections = Connections(most, server.metrics.drop)
    options = server.options
    return uvicorn.Config(
        connections.limited(request_ids(application, logs=options.logs)),
        interface="asgi3",
        http=connections.protocol(),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # the addresses of requests are those of their connections
        ssl_certfile=options.certificate,
        ssl_keyfile=options.certificate_key,
    )


def check_certificate(options: ServerOptions) -> None:
    """Raise TSR5066 if the files for TLS do not fit, before anything slow is done."""
    if options.certificate is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The server asks for no password: a key that needs one cannot be used.
        context.load_cert_chain(options.certificate, options.certificate_key, lambda: b"")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise not_served(
            f"`{options.certificate}` and its key cannot be used for TLS: {reason.lower()}",
            "give a certificate and its key without a password as PEM files: `--ssl-certfile` and "
            "`--ssl-keyfile`",
        ) from None


def run_server(server: CompletionServer, listening: socket.socket) -> None:
    """Serve until a signal; then finish the requests under way, and return."""
    config = server_config(server, most_connections())
    import uvicorn

    # uvicorn raises a signal again once it has stopped, but the caller has to close the engine.
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    running, over = uvicorn.Server(config), threading.Event()
    watch = threading.Thread(target=leave_stuck, args=(running, server, over), daemon=True)
    watch.start()
    try:
        with counted_logs(), request_log(logs=server.options.logs):
            running.run(sockets=[listening])
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_stuck(running: EndingServer, server: CompletionServer, over: threading.Event) -> None:
    """End the server even if a client does not read its answer."""
    while not over.wait(_WATCH_S):
        if running.should_exit and server.is_idle:
            running.force_exit = not over.wait(_TAKE_S)
            return
