"""The real Prometheus JMX exporter in a separate JVM, behind TLS and a password."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from jobs.config.metrics_registry import Prometheus, load_rules
from jobs.setup.jars import exporter_jar
from jobs.testbed.listeners import PASSWORD_OF_STORES, write_jmx_tls
from jobs.testbed.places import accepts
from metrics.sources.http_access import ClosedError
from metrics.sources.scraper import Scraper
from metrics.sources.source import Endpoint
from tests.support.bare_jvm import bare_jvm
from tests.support.jmx_nodes import free_port
from tests.support.processes import becomes

pytestmark = pytest.mark.together

HERE, USER, PASSWORD = "127.0.0.1", "scraper", "pass:word of the exporter"
START_S = 30.0
"""Deadline for the first answer of a JVM on two busy cores [s]."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def port(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of the exporter."""
    folder, number = tmp_path_factory.mktemp("exporter"), free_port()
    write_jmx_tls(authority.issue_cert(HERE), folder / "keys.p12", folder / "unused.properties")
    server = {
        "authentication": {"basic": {"username": USER, "password": PASSWORD}},
        "ssl": {
            "keyStore": {"filename": str(folder / "keys.p12"), "password": PASSWORD_OF_STORES},
            "certificate": {"alias": "broker"},
        },
    }
    (folder / "rules.yaml").write_text(
        json.dumps({"httpServer": server, "rules": [{"pattern": ".*"}]})
    )
    agent = f"-javaagent:{exporter_jar()}={HERE}:{number}:{folder / 'rules.yaml'}"
    with bare_jvm(agent, "-Xmx64m"):
        assert becomes(lambda: accepts(number, 1.0), START_S)
        yield number


@pytest.fixture
def way(
    port: int, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, object]:
    """The keys of a cluster file with the right login."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SCRAPER", USER)
    monkeypatch.setenv("SCRAPER_PASSWORD", PASSWORD)
    monkeypatch.setenv("SCRAPER_OTHER", "another")
    return {
        "port": port,
        "rules": "msk",
        "tls": True,
        "cafile": str(tmp_path / "ca.pem"),
        "username_from": "env:SCRAPER",
        "password_from": "env:SCRAPER_PASSWORD",
    }


def scraped(way: dict[str, object]) -> dict[str, float]:
    """The readings of a sample; raises the error of a failed one."""
    keys = Prometheus.model_validate(way)
    assert keys.port is not None
    endpoint = Endpoint(1, HERE, keys.port)
    with closing(Scraper(endpoint, keys.access(), load_rules("msk"))) as scraper:
        values = [dict(scraper.scrape(START_S).values) for _ in range(2)]
    assert values[0].keys() == values[1].keys()
    return values[1]


def test_it_is_read_with_the_password_and_its_authority(way: dict[str, object]) -> None:
    values = scraped(way)
    assert values["process_cpu_ns"] > 0
    assert values["heap_used_bytes"] > 0


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"password_from": "env:SCRAPER_OTHER"}, "it refuses the login, HTTP 401"),
        ({"username_from": None, "password_from": None}, "it requires a login (Basic), HTTP 401"),
        ({"cafile": None}, "its certificate is not trusted"),
        ({"tls": False, "cafile": None}, "set metrics.prometheus.tls: true if it speaks HTTPS"),
    ],
)
def test_each_refusal_is_explained(
    way: dict[str, object], changed: dict[str, object], part: str
) -> None:
    with pytest.raises(ClosedError) as caught:
        scraped({**way, **changed})
    assert part in str(caught.value)
    assert PASSWORD not in str(caught.value)
