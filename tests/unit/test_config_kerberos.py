"""GSSAPI: Kerberos supplies the tickets, and the configuration checks the rest."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path

import pytest

from jobs.checks.survey import Needs
from jobs.config import load, load_cluster
from jobs.config.security import Security
from jobs.engine.network.refusals import explain_refusal
from metrics.common.errors import ConfigError

GSSAPI = {"protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
CLUSTER = [f"cluster.security.{key}={value}" for key, value in GSSAPI.items()]


@pytest.mark.parametrize(("given", "service"), [(None, "kafka"), ("broker", "broker")])
def test_kafka_python_requests_a_ticket_for_the_service(
    monkeypatch: pytest.MonkeyPatch, given: str | None, service: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    options = Security.model_validate({**GSSAPI, "kerberos_service_name": given}).client_kwargs()
    assert options["sasl_mechanism"] == "GSSAPI"
    assert options["sasl_kerberos_service_name"] == service


def test_the_message_about_a_missing_extra_names_the_extra_and_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError) as caught:
        Security.model_validate(GSSAPI).client_kwargs()
    of_executor = explain_refusal(
        RuntimeError("GSSAPI lib not found!"), {"sasl_mechanism": "GSSAPI", **_OPTIONS}
    )
    for message in (str(caught.value), of_executor):
        assert f"gssapi is not installed on {socket.gethostname()}" in message
        assert "pip install 'kafka-redline[gssapi]'" in message


_OPTIONS = {"security_protocol": "SASL_SSL", "sasl_kerberos_service_name": "kafka"}


@pytest.mark.parametrize("role", ["producer", "consumers"])
def test_librdkafka_is_refused_before_any_load(role: str) -> None:
    load("example", "1kB", "default", CLUSTER)
    overrides = [*CLUSTER, "workload.consumers.groups=1", f"workload.{role}.client=librdkafka"]
    with pytest.raises(ConfigError, match=f"--set workload.{role}.client=wire"):
        load("example", "1kB", "default", overrides)


def test_doctor_checks_executors_for_the_package() -> None:
    config = load("example", "1kB", "default", CLUSTER)
    assert Needs.of(config.workload, config.cluster).packages["gssapi"] == "gssapi"
    plain = load("example", "1kB", "default")
    assert "gssapi" not in Needs.of(plain.workload, plain.cluster).packages


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"password_from": "env:A"}, "password_from has no effect with sasl_mechanism GSSAPI"),
        ({"aws_region": "eu-west-1"}, "aws_region has no effect"),
        ({"kerberos_service_name": "kafka/host"}, "the first part of a principal"),
        ({"sasl_mechanism": "PLAIN", "kerberos_service_name": "kafka"}, "expected sasl_mechanism"),
        ({"protocol": "SSL", "sasl_mechanism": None, "kerberos_service_name": "k"}, "expected pro"),
    ],
)
def test_an_incomplete_configuration_is_refused(keys: dict[str, str | None], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Security.model_validate({**GSSAPI, **keys})


def test_a_properties_file_supplies_the_service_but_no_keytab(tmp_path: Path) -> None:
    file, cluster = tmp_path / "client.properties", tmp_path / "cluster.yaml"
    cluster.write_text(f"client_properties: {file}\nmetrics: {{client_only: true}}\n")
    text = (
        "bootstrap.servers=a:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n"
        "sasl.kerberos.kinit.cmd=/usr/bin/kinit\n{}\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required {};\n"
    )
    file.write_text(text.format("sasl.kerberos.service.name=broker", "useTicketCache=true"))
    assert load_cluster(str(cluster)).security.kerberos_service_name == "broker"
    file.write_text(text.format("", 'useTicketCache=true serviceName="other"'))
    assert load_cluster(str(cluster)).security.kerberos_service_name == "other"
    file.write_text(text.format("", 'useKeyTab=true keyTab="/etc/load.keytab"'))
    with pytest.raises(ConfigError, match=r"with keyTab; expected .*KRB5_CLIENT_KTNAME"):
        load_cluster(str(cluster))
