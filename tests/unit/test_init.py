"""`redline init`: a few questions, and a file that a run takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from jobs.config.loading import load_cluster
from jobs.config.metrics_registry import Prometheus
from jobs.init import init
from metrics.common.errors import ConfigError


def run_init(file: Path, *options: str, answers: str = "") -> Result:
    return CliRunner().invoke(init, [str(file), *options], input=answers, standalone_mode=False)


PLAIN = ("--servers=b:9092", "--protocol=PLAINTEXT", "--metrics=jmx")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def test_five_answers_make_a_file_that_loads(file: Path) -> None:
    answers = "broker-1:9092, broker-2:9092\nSASL_SSL\nSCRAM-SHA-256\n\nprometheus\n"
    done = run_init(file, answers=answers)
    assert done.exception is None, done.output
    cluster = load_cluster(str(file))
    assert cluster.bootstrap_servers == ("broker-1:9092", "broker-2:9092")
    security = cluster.security
    assert (security.protocol, security.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")
    assert (security.username_from, security.cafile) == ("env:KAFKA_USERNAME", None)
    assert "9404" in file.read_text()
    assert "set KAFKA_PASSWORD " in done.output
    assert f"redline doctor --cluster {file}" in done.output


def test_options_replace_questions(file: Path) -> None:
    for metrics in ("jmx", "none"):
        options = ("--servers=b:9092", "--protocol=SSL", "--cafile=/ca.pem", f"--metrics={metrics}")
        done = run_init(file, *options, "--force")
        assert done.exception is None, done.output
        security = load_cluster(str(file)).security
        assert (security.protocol, security.cafile) == ("SSL", "/ca.pem")
        assert ("9999" in file.read_text()) == (metrics == "jmx")
    assert run_init(file, *PLAIN, "--force").exception is None
    assert "security" not in file.read_text().split("never written here.")[1]


def test_a_prometheus_server_is_asked_for_its_url_selector_and_label(file: Path) -> None:
    def found(*options: str, answers: str = "") -> tuple[object, ...]:
        done = run_init(file, *options, answers=answers)
        assert done.exception is None, done.output
        source = load_cluster(str(file)).broker_source
        assert isinstance(source, Prometheus)
        return source.server, source.selector, source.broker_label, source.tls

    answers = "b:9092\nPLAINTEXT\nprometheus-server\nhttps://p.example.com\n\npod\n"
    assert found(answers=answers) == ("https://p.example.com", 'job="kafka"', "pod", True)
    options = (*PLAIN[:2], "--metrics=prometheus-server", "--force", "--metrics-server=http://p")
    labels = ('--metrics-selector=job="k"', "--broker-label=host")
    assert found(*options, *labels)[:3] == ("http://p", 'job="k"', "host")
    done = run_init(file, *options, "--metrics-selector=kafka")
    assert isinstance(done.exception, ConfigError)


def test_an_existing_file_stays(file: Path, snapshot: SnapshotAssertion) -> None:
    file.write_text("mine")
    done = run_init(file, *PLAIN)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).replace(str(file), "FILE") == snapshot
    assert file.read_text() == "mine"
    assert run_init(file, *PLAIN, "--force").exception is None


def test_a_file_that_a_run_would_refuse_is_not_kept(file: Path) -> None:
    for servers in ("", " , ", "no port", "b:99999999"):
        options = (f"--servers={servers}", *PLAIN[1:])
        assert isinstance(run_init(file, *options).exception, ConfigError)
        assert not file.exists()
        file.write_text("before")
        assert isinstance(run_init(file, *options, "--force").exception, ConfigError)
        assert file.read_text() == "before"
        file.unlink()
