"""A token server with one client, by the grant of client credentials."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

CLIENT, SECRET = "us", "s3cret/+"


def numbered(number: int) -> dict[str, object]:
    """token-1, token-2, … with a life of 100 s."""
    return {"access_token": f"token-{number}", "expires_in": 100}


class TokenServer(HTTPServer):
    """The server.

    Args:
        make: number of a token, from 1 → the answer with the token.

    Attributes:
        given: number of answers.
        forms: the requests.
        status: status of the answers.
        answer: the answer in place of a token; None for tokens.
        expected: user and password that are accepted.
    """

    def __init__(self, make: Callable[[int], dict[str, object]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/token"
        self.make = make
        self.given = 0
        self.forms: list[str] = []
        self.status = 200
        self.answer: object = None
        self.expected = f"{CLIENT}:s3cret%2F%2B"


class _Handler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        server = self.server
        server.forms.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        expected = b64encode(server.expected.encode()).decode()
        is_known = self.headers["Authorization"] == f"Basic {expected}"
        server.given += 1
        body = json.dumps(server.answer or server.make(server.given)).encode()
        self.send_response(server.status if is_known else 401)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""


@contextmanager
def token_server(
    make: Callable[[int], dict[str, object]] = numbered,
) -> Iterator[TokenServer]:
    """A server that serves until the end of the block."""
    with TokenServer(make) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()
