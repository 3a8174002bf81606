"""Hostile and broken answers of servers end in a missed sample or a sentence, in bounds."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import tracemalloc
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import repeat
from typing import Any

import pytest

from jobs.config import tokens
from jobs.config.tokens import ClientCredentials
from jobs.engine.task import control_channel
from metrics.common.errors import ConfigError
from metrics.sources.bean_poller import BeanPoller, BeanValue
from metrics.sources.beans import AT_START
from metrics.sources.exposition import kind_of, numbers, parse_series
from metrics.sources.hosts.node_exporter import RULES
from metrics.sources.http_access import HttpAccess, ScrapeError, basic
from metrics.sources.one_minute_rates import rounding_of
from metrics.sources.scraper import Scraper
from metrics.sources.server.api import ServerApi
from metrics.sources.source import Endpoint

TIMEOUT_S = 0.3
TOOK_MAX_S = 10.0
MEMORY_MAX = 64 * 2**20
SECRET = "s3cret"
OK = b"HTTP/1.1 200 OK\r\n"


def whole(body: bytes, kind: str = "text/plain") -> list[bytes]:
    head = b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind.encode(), len(body))
    return [OK + head + body]


def dripped(head: bytes, pause_s: float = 0.02) -> Iterator[bytes]:
    yield head
    while True:
        time.sleep(pause_s)  # the pace of the attack, not a synchronization
        yield b"a"


def series(number: str) -> bytes:
    result = {"metric": {"a": "b"}, "values": [["TIME", "1"]]}
    text = json.dumps({"status": "success", "data": {"result": [result]}})
    return text.replace('"TIME"', number).encode()


BODIES: dict[str, Callable[[], Any]] = {
    "a drip in the header": lambda: dripped(OK + b"X: "),
    "a drip in the body": lambda: dripped(OK + b"\r\n"),
    "an endless body": lambda: (OK + b"\r\n", *repeat(b"a" * 2**20, 200)),
    "a huge length": lambda: [OK + b"Content-Length: 100000000000000\r\n\r\nab"],
    "a length of 5,000 digits": lambda: [OK + b"Content-Length: %s\r\n\r\nab" % (b"9" * 5000)],
    "a negative length": lambda: [OK + b"Content-Length: -5\r\n\r\nab"],
    "a length beyond the body": lambda: [OK + b"Content-Length: 10\r\n\r\nab"],
    "chunks without an end": lambda: (
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        *repeat(b"10000\r\n" + b"a" * 65_536 + b"\r\n", 4_000),
    ),
    "a chunk of a negative size": lambda: [OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nab"],
    "a chunk without a size": lambda: [OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab"],
    "trailers without an end": lambda: (
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        *repeat(b"X: " + b"a" * 60_000 + b"\r\n", 2_000),
    ),
    "many headers": lambda: (OK, *repeat(b"X: y\r\n", 10_000)),
    "long headers": lambda: (OK, *repeat(b"X: " + b"y" * 65_000 + b"\r\n", 90)),
    "100 Continue for ever": lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n", 200_000),
    "another protocol": lambda: [b"SSH-2.0-OpenSSH_9.0\r\n"],
    "nothing": list,
    "an empty body": lambda: whole(b""),
    "gzip without a request": lambda: whole(gzip.compress(b"a" * 2**20)),
    "a login page": lambda: whole(b"<html><title>" + b" " * 10**5 + b"</html>", "text/html"),
    "a redirection loop": lambda: [
        b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\nContent-Length: 0\r\n\r\n"
    ],
    "invalid UTF-8": lambda: whole(b"\xff\xfe\x80" * 1000),
    "NUL bytes": lambda: whole(b"\0" * 10**6),
    "a million series": lambda: whole(b"".join(b"n_%d 1\n" % each for each in range(10**6))),
    "one series a million times": lambda: whole(b"node_procs_running 1\n" * 10**6),
    "a long line": lambda: whole(b"node_load1{" + b'a="b",' * 10**6 + b"} 1\n"),
    "brackets": lambda: whole(b"[" * 100_000),
    "objects in objects": lambda: whole(b'{"a":' * 100_000),
    "NaN": lambda: whole(series("NaN")),
    "a number of 10,000 digits": lambda: whole(series("9" * 10_000)),
    "a number of 400 digits": lambda: whole(series("9" * 400)),
    "1e999": lambda: whole(series("1e999")),
    "a time of text": lambda: whole(series('"soon"')),
}  # fmt: skip


@contextmanager
def serving(answer: Callable[[], Any]) -> Iterator[tuple[int, list[bytes]]]:
    """Serve raw bytes to each connection, which is closed after them."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.settimeout(5.0)
                        received.append(connection.recv(65_536))
                        for part in answer():
                            connection.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1], received
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
    thread.join(5.0)


OPEN = HttpAccess("x")


def scrape(port: int, access: HttpAccess = OPEN, timeout_s: float = TIMEOUT_S) -> object:
    with closing(Scraper(Endpoint(1, "127.0.0.1", port), access, RULES)) as scraper:
        return scraper.scrape(timeout_s)


def query(port: int, access: HttpAccess = OPEN, timeout_s: float = TIMEOUT_S) -> object:
    with closing(ServerApi(f"http://127.0.0.1:{port}", access, timeout_s)) as api:
        return api.query("up")


def server_clock(port: int) -> object:
    with closing(ServerApi(f"http://127.0.0.1:{port}", HttpAccess("x"), TIMEOUT_S)) as api:
        return api.clock_offset()


def token(port: int) -> object:
    return ClientCredentials(f"http://127.0.0.1:{port}/token", "me", SECRET).token()


READERS: dict[str, Callable[..., object]] = {
    "exporter": scrape, "query": query, "clock": server_clock, "token": token,
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_answer_is_a_miss_or_a_sentence_within_bounds(
    name: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", TIMEOUT_S)
    with serving(BODIES[name]) as (port, _):
        began_s = time.monotonic()
        tracemalloc.start()
        try:
            READERS[reader](port)
            sentence = ""
        except (ScrapeError, ConfigError) as error:
            sentence = str(error)
        finally:
            taken = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert time.monotonic() - began_s < TOOK_MAX_S
    assert taken < MEMORY_MAX
    assert len(sentence) < 1_000 and sentence.isprintable()
    assert sentence or reader == "exporter", "no reader of JSON accepts it"


@pytest.mark.parametrize("reader", ["exporter", "query", "token"])
def test_credentials_do_not_follow_a_redirection(reader: str) -> None:
    access = HttpAccess("x", login=lambda: basic("me", SECRET, "x"))
    given = () if reader == "token" else (access, 5.0)
    for status in (301, 302, 303, 307, 308):
        with serving(lambda: whole(b"{}")) as (other, received):
            there = b"HTTP/1.1 %d Moved\r\nLocation: http://localhost:%d/a?secret\r\n"
            moved = there % (status, other) + b"Content-Length: 0\r\n\r\n"
            with (
                serving(lambda moved=moved: [moved]) as (port, asked),  # type: ignore[misc]
                pytest.raises((ScrapeError, ConfigError), match="redirections are not foll") as no,
            ):
                READERS[reader](port, *given)
        assert asked and b"Authorization: Basic" in asked[0]
        assert received == [] and "?secret" not in str(no.value)


class TextBeans(BeanPoller[Endpoint]):
    """A node that answers one value for each of its numbers."""

    name = "texts"

    def __init__(self, value: object) -> None:
        super().__init__([Endpoint(1, "127.0.0.1", 1)], 1.0)
        self.value = value

    def poll(self, endpoint: Endpoint, beans: Any, timeout_s: float) -> Iterator[BeanValue]:
        version = AT_START[0]
        yield BeanValue(version.object_name.replace("*", "1"), version.attribute, "4.1.0")
        for name, attributes in beans.items():
            for attribute in attributes:
                yield BeanValue(name.replace("*", "1"), attribute, self.value)

    def unreachable(self, endpoint: Endpoint, error: str) -> ConfigError:
        return ConfigError(error)


ODD_NUMBERS = ["soon", "", "1e999", "NaN", "9" * 5_000, "1.8e308", [], {"a": 1}, True, -(10**400)]


@pytest.mark.parametrize("value", ODD_NUMBERS, ids=lambda each: str(each)[:8])
def test_a_bean_without_a_number_is_left_out(value: object) -> None:
    assert numbers({"a": value, "b": 5}) == {"b": 5.0}
    with closing(TextBeans(value)) as source, suppress(ConfigError):
        source.open()
        assert source.sample_all()[0].values == {}


def test_numbers_and_texts_of_pages_are_read_in_bounds() -> None:
    assert rounding_of("5.0E8 1690000000000") == 0.5 * 10.0**7
    assert rounding_of("0e400") > 0.0
    began_s = time.monotonic()
    assert parse_series("a{" + 'b="c",' * 10**6 + "}") is None
    assert "HTML" in kind_of("<html><title>" + " " * 10**6)
    assert len(kind_of("a" * 10**6 + " 1\n")) < 300
    assert time.monotonic() - began_s < TOOK_MAX_S


def test_a_report_of_a_window_is_unpacked_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_channel, "WINDOW_BYTES_MAX", 1_000)
    packed = {size: b64encode(zlib.compress(b"a" * size)).decode() for size in (1_000, 10**6)}
    assert len(control_channel.unpacked_window(packed[1_000])) == 1_000
    for bad in (packed[10**6], packed[1_000][:8]):
        with pytest.raises(ValueError, match="longer than 1000 bytes"):
            control_channel.unpacked_window(bad)
