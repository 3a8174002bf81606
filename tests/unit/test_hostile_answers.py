"""Hostile and broken answers of servers end in a missed sample or a sentence, in bounds.

Answers that the protocol allows and few brokers give: each is read, or named in an error.
"""

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
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreateTopicsResponse,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from jobs.checks.cluster import permission_rules
from jobs.cluster.admin import UNREADABLE, AdminError, KafkaAdmin, Property, TopicSize
from jobs.cluster.connect import connect
from jobs.cluster.health import ClusterHealth
from jobs.cluster.lock import holder_of
from jobs.cluster.permissions import permissions
from jobs.cluster.sources import changed_properties, replicas_by_broker
from jobs.config import tokens
from jobs.config.tokens import ClientCredentials
from jobs.engine.task import control_channel
from metrics.common.errors import ConfigError
from metrics.sources.bean_poller import BeanPoller, BeanValue
from metrics.sources.beans import AT_START
from metrics.sources.client_only import Replicas
from metrics.sources.exposition import kind_of, numbers, parse_series
from metrics.sources.hosts.node_exporter import RULES
from metrics.sources.http_access import HttpAccess, ScrapeError, basic
from metrics.sources.one_minute_rates import rounding_of
from metrics.sources.scraper import Scraper
from metrics.sources.server.api import ServerApi
from metrics.sources.source import Endpoint
from tests.support.fake_cluster import FakeCluster, Habits

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


OLD = {
    DescribeClusterRequest: 0,
    DescribeConfigsRequest: 0,
    DescribeLogDirsRequest: 0,
    ElectLeadersRequest: 0,
    ListGroupsRequest: 3,
    MetadataRequest: 4,
}
LACKING = {DescribeClusterRequest: None, DescribeLogDirsRequest: None, ElectLeadersRequest: None}


@contextmanager
def connected(**habits: Any) -> Iterator[tuple[KafkaAdmin, FakeCluster]]:
    with FakeCluster(Habits(**habits)) as cluster, connect(cluster.addresses) as admin:
        cluster.topics["t"] = [(0, 1001), (1001, 0)]
        cluster.groups = {"idle": "Empty", "busy": "Stable", "odd": "Wondering"}
        yield admin, cluster


@pytest.mark.parametrize("versions", [{}, OLD, LACKING], ids=["new", "old", "lacking"])
def test_every_request_is_answered(versions: dict[Any, Any]) -> None:
    with connected(versions=versions, config_source=-1, racks=(None, "b")) as (admin, cluster):
        info = admin.describe_cluster()
        assert info.broker_ids == (0, 1001) and info.fenced == ()
        assert [each.rack for each in info.brokers] == [None, "b"]
        assert [f"{host}:{port}" for host, port in info.addresses.values()] == cluster.addresses
        assert info.cluster_id == ("" if versions is LACKING else "fake")
        assert admin.broker_config(1001) == {"num.io.threads": "8", "ssl.key.password": None}
        assert admin.broker_config(0, ["num.io.threads"])["num.io.threads"] == "8"
        assert admin.topic_config("t")["num.io.threads"] == "8"
        assert admin.topic_names() == {"t"}
        made = admin.create_topic("u", {0: (1001, 0)}, {"retention.ms": "1"})
        assert made == {"max.message.bytes": "1048588"}
        assert admin.create_topic("v", TopicSize(3, 1), {}, validate_only=True) == made
        admin.create_partitions("u", 2)
        assert cluster.requests == ["create u assigned", "grow u 2"]
        assert admin.partitions_seen_by(0, ["u", "none"])["none"] is None
        seen = admin.partitions_seen_by(1001, ["t"])["t"]
        assert seen is not None
        assert seen[1].replicas == (1001, 0)
        assert admin.end_offsets([("t", 1), ("u", 0)]) == {("t", 1): 10, ("u", 0): 0}
        if versions is not LACKING:
            admin.elect_preferred_leaders([("t", 1), ("t", 0)])
            assert admin.topics_held_by(1001) == frozenset({"t", "u"})
            assert admin.log_dirs_of(0, {"t": [0]})[0]["log_dir"] == "/data"
        assert admin.forbidden_among(0, ["t", "none"]) == frozenset()
        assert admin.empty_groups() == (frozenset() if versions is OLD else {"idle"})
        admin.delete_group("idle")
        assert "idle" not in cluster.groups
        admin.delete_topic("u")
        assert admin.topic_names() == {"t"}
        assert admin.features() == {}
        assert replicas_by_broker(admin) == {0: Replicas(1, 0, 0), 1001: Replicas(1, 0, 0)}


def test_a_source_that_is_unknown_is_neither_default_nor_configured() -> None:
    unknown = {-1: None, 0: None, 99: None}
    for source, is_default in {**unknown, 5: True, 4: False, 8: False}.items():
        with connected(config_source=source) as (admin, _):
            found = admin.broker_properties(0)["num.io.threads"]
            changed = changed_properties(admin, 0)
        assert found == Property("8", is_default)
        assert changed == ({"num.io.threads": "8"} if is_default is False else {})


def test_brokers_without_log_directories_have_no_known_disk_and_no_known_topics() -> None:
    with connected(log_dirs=()) as (admin, _):
        assert admin.topics_held_by(0) is None
        dirs = ClusterHealth(admin).log_dirs(["t"])
        words = [f"broker {each} reports no log directory" for each in (0, 1001)]
        assert [each.unknown_words for each in dirs] == words
        assert ClusterHealth(admin).hidden_topics() is None
    with connected(versions=LACKING) as (admin, _):
        assert not any(each.is_known for each in ClusterHealth(admin).log_dirs(["t"]))
        assert ClusterHealth(admin).hidden_topics() is None
        with pytest.raises(AdminError, match="IncompatibleBrokerVersion"):
            admin.elect_preferred_leaders([("t", 0)])


def test_a_topic_that_vanishes_between_two_requests_is_an_error_with_its_name() -> None:
    with connected() as (admin, cluster):
        cluster.vanishing.add("t")
        with pytest.raises(AdminError, match=r"topic t .*UnknownTopicOrPartition"):
            admin.end_offsets([("t", 0)])
        with pytest.raises(AdminError, match=r"topic t .*UnknownTopicOrPartition"):
            admin.end_offsets([("t", 0)])
        assert ClusterHealth(admin).under_replicated() == frozenset()
        assert len(ClusterHealth(admin).log_dirs(["t"])) == 2


CODED: dict[str, tuple[Callable[[KafkaAdmin], Any], str]] = {
    "describe_code": (lambda admin: admin.describe_cluster(), "describe the cluster"),
    "config_code": (lambda admin: admin.broker_config(0), "configuration of broker 0"),
    "group_code": (lambda admin: admin.delete_group("idle"), "consumer group idle"),
    "election_code": (lambda admin: admin.elect_preferred_leaders([("t", 0)]), "topic t"),
    "deletion_code": (lambda admin: admin.delete_topic("t"), "topic t"),
    "offset_code": (lambda admin: admin.end_offsets([("t", 0)]), "topic t"),
    "refuses_assignments": (lambda admin: admin.create_topic("u", {0: (0,)}, {}), "topic u"),
    "refuses_partitions": (lambda admin: admin.create_partitions("t", 9), "topic t"),
}


def test_an_error_code_that_is_unknown_is_named() -> None:
    for habit, (ask, place) in CODED.items():
        coded: dict[str, Any] = {habit: 999}
        with connected() as (admin, cluster):
            cluster.habits = replace(cluster.habits, **coded)
            with pytest.raises(AdminError, match="error code 999") as caught:
                ask(admin)
        assert place in str(caught.value)
    with connected(group_code=999) as (admin, _), pytest.raises(AdminError, match="999"):
        admin.empty_groups()
    with connected(describe_code=35) as (admin, _):
        assert admin.describe_cluster().broker_ids == (0, 1001), "by their metadata"


EMPTY: dict[Any, Callable[[KafkaAdmin], Any]] = {
    DescribeConfigsResponse: lambda admin: admin.topic_config("t"),
    DeleteGroupsResponse: lambda admin: admin.delete_group("idle"),
    CreateTopicsResponse: lambda admin: admin.create_topic("u", TopicSize(1, 1), {}),
    DeleteTopicsResponse: lambda admin: admin.delete_topic("t"),
}


def test_an_answer_without_a_result_is_an_error() -> None:
    for kind, ask in EMPTY.items():
        with (
            connected(empty_answers=frozenset({kind})) as (admin, _),
            pytest.raises(AdminError, match="cannot be read") as caught,
        ):
            ask(admin)
        assert caught.value.cause == UNREADABLE
    with connected() as (admin, _), pytest.raises(AdminError, match="broker 0"):
        holder_of(admin, [0])
    incompatible = pytest.raises(AdminError, match="IncompatibleBrokerVersion")
    with connected(versions={ApiVersionsRequest: 2}) as (admin, _), incompatible:
        admin.features()


def test_a_controller_that_moved_is_found_again_and_one_that_never_settles_is_an_error() -> None:
    with connected(denials=1) as (admin, cluster):
        admin.create_topic("u", {0: (0,)}, {})
        assert "u" in cluster.topics
    with connected(denials=9) as (admin, _), pytest.raises(AdminError, match="NotController"):
        admin.create_topic("u", {0: (0,)}, {})


def test_permissions_that_the_brokers_do_not_show_are_unknown_and_named() -> None:
    lacking = {DeleteRecordsRequest: None, HeartbeatRequest: None}
    with connected(versions=lacking) as (admin, _):
        found = permissions(admin, 1001, "redline-none", lock_group="redline-lock")
        shown = {each.action: each.is_known for each in found}
    assert shown["delete"] is shown["write"] is shown["lock the cluster"] is False
    texts = [finding.found for finding in permission_rules(found, "redline-")]
    assert any("permission to delete" in text for text in texts)
