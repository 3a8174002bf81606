"""A token server with one client, by the grant of client credentials."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.served_http import Answer, Asked, served

CLIENT, SECRET = "us", "s3cret/+"


def numbered(number: int) -> dict[str, object]:
    """token-1, token-2, … with a life of 100 s."""
    return {"access_token": f"token-{number}", "expires_in": 100}


class TokenServer:
    """The server.

    Attributes:
        make: number of a token, from 1 → the answer with the token.
        answer: the answer in place of a token; None for tokens.
        expected: user and password that are accepted.
    """

    def __init__(self, make: Callable[[int], dict[str, object]]) -> None:
        self.url = ""
        self.make = make
        self.given = 0
        self.forms: list[str] = []
        self.status = 200
        self.answer: object = None
        self.expected = f"{CLIENT}:s3cret%2F%2B"

    def answer_to(self, asked: Asked) -> Answer:
        self.forms.append(asked.body.decode())
        is_known = asked.login == f"Basic {b64encode(self.expected.encode()).decode()}"
        self.given += 1
        text = json.dumps(self.answer or self.make(self.given))
        return Answer(text, self.status if is_known else 401)


@contextmanager
def token_server(
    make: Callable[[int], dict[str, object]] = numbered, context: ssl.SSLContext | None = None
) -> Iterator[TokenServer]:
    """A server that serves until the end of the block, over HTTPS if there is a context."""
    made = TokenServer(make)
    with served(made.answer_to, context=context) as port:
        made.url = f"http{'s' if context else ''}://localhost:{port}/token"
        yield made
