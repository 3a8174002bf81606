"""An HTTP server on loopback whose answers a test makes."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        client_port: port of the client, by which connections differ.
        login: its Authorization header; None without one.
    """

    method: str
    path: str
    body: bytes
    login: str | None
    client_port: int


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        wants: the login that an answer with the status 401 asks for.
        hangs_up: whether the connection is closed after it.
    """

    body: bytes | str
    status: int = 200
    wants: str = "Basic"
    hangs_up: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore clients that end the TLS handshake."""


@contextmanager
def served(
    answer: Callable[[Asked], Answer], port: int = 0, context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Serve answers, over HTTPS if there is a context; yields the port.

    Args:
        port: the port; 0 for a free one.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            login = self.headers.get("Authorization")
            made = answer(Asked(self.command, self.path, body, login, self.client_address[1]))
            content = made.body.encode() if isinstance(made.body, str) else made.body
            self.send_response(made.status)
            if made.status == 401:
                self.send_header("WWW-Authenticate", made.wants)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = made.hangs_up

        do_POST = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *_: object) -> None: ...

    server = _Server(("127.0.0.1", port), Handler)
    if context is not None:  # the thread of each connection does its own TLS handshake
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
