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


def test_five_answers_make_a_file_that_loads(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    answers = "broker-1:9092, broker-2:9092\nSASL_SSL\nSCRAM-SHA-256\n\nprometheus\n"
    done = run_init(file, answers=answers)
    assert done.exception is None, done.output
    cluster = load_cluster(str(file))
    assert cluster.bootstrap_servers == ("broker-1:9092", "broker-2:9092")
    assert cluster.security.protocol == "SASL_SSL"
    assert cluster.security.sasl_mechanism == "SCRAM-SHA-256"
    assert cluster.security.username_from == "env:KAFKA_USERNAME"
    assert cluster.security.cafile is None
    assert "9404" in file.read_text()
    assert "set KAFKA_PASSWORD " in done.output
    assert f"redline doctor --cluster {file}" in done.output


@pytest.mark.parametrize("metrics", ["jmx", "none"])
def test_options_replace_questions(tmp_path: Path, metrics: str) -> None:
    file = tmp_path / "mine.yaml"
    options = ("--servers=b:9092", "--protocol=SSL", "--cafile=/ca.pem", f"--metrics={metrics}")
    done = run_init(file, *options)
    assert done.exception is None, done.output
    cluster = load_cluster(str(file))
    assert (cluster.security.protocol, cluster.security.cafile) == ("SSL", "/ca.pem")
    assert ("9999" in file.read_text()) == (metrics == "jmx")


def test_a_prometheus_server_is_asked_for_its_url_selector_and_label(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    answers = "b:9092\nPLAINTEXT\nprometheus-server\nhttps://p.example.com\n\npod\n"
    done = run_init(file, answers=answers)
    assert done.exception is None, done.output
    found = load_cluster(str(file)).broker_source
    assert isinstance(found, Prometheus)
    assert (found.server, found.selector) == ("https://p.example.com", 'job="kafka"')
    assert (found.broker_label, found.tls) == ("pod", True)
    options = ("--metrics-server=http://p", '--metrics-selector=job="k"', "--broker-label=host")
    known = ("--servers=b:9092", "--protocol=PLAINTEXT", "--metrics=prometheus-server", "--force")
    done = run_init(file, *known, *options)
    assert done.exception is None, done.output
    found = load_cluster(str(file)).broker_source
    assert isinstance(found, Prometheus)
    assert (found.server, found.selector, found.broker_label) == ("http://p", 'job="k"', "host")
    done = run_init(file, *known, *options, "--metrics-selector=kafka")
    assert isinstance(done.exception, ConfigError)


def test_plain_brokers_have_no_security(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    assert (
        run_init(file, "--servers=b:9092", "--protocol=PLAINTEXT", "--metrics=jmx").exception
        is None
    )
    assert "security" not in file.read_text().split("never written here.")[1]


def test_an_existing_file_stays(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("mine")
    options = ("--servers=b:9092", "--protocol=PLAINTEXT", "--metrics=jmx")
    done = run_init(file, *options)
    assert isinstance(done.exception, ConfigError)
    message = str(done.exception)
    assert str(file) in message and "--force" in message
    assert message.replace(str(file), "FILE") == snapshot
    assert file.read_text() == "mine"
    assert run_init(file, *options, "--force").exception is None


@pytest.mark.parametrize("servers", ["", " , ", "no port", "b:99999999"])
def test_a_file_that_a_run_would_refuse_is_not_kept(tmp_path: Path, servers: str) -> None:
    file = tmp_path / "mine.yaml"
    options = (f"--servers={servers}", "--protocol=PLAINTEXT", "--metrics=jmx")
    assert isinstance(run_init(file, *options).exception, ConfigError)
    assert not file.exists()
    file.write_text("before")
    assert isinstance(run_init(file, *options, "--force").exception, ConfigError)
    assert file.read_text() == "before"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    options = ("--servers=b:9092", "--protocol=PLAINTEXT", "--metrics=jmx")
    done = run_init(tmp_path / "nothing" / "mine.yaml", *options)
    assert done.exception is None or isinstance(done.exception, ConfigError)
