"""Warnings about secrets of a cluster's file that others can read or change."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jobs.checks.finding import Finding, warning
from jobs.config import Cluster
from jobs.config.base import ConfigModel
from jobs.config.metrics_registry import configured_sources

CHECK = "secrets"
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def exposure_findings(
    cluster: Cluster, hosts: Iterable[str], settings: Mapping[str, str], master: str
) -> list[Finding]:
    """Warnings about secrets that cross a network in the clear, or whose files others can change.

    Args:
        hosts: the brokers' advertised hosts.
        settings: settings of the Spark context, by Spark's names.
        master: master URL of the Spark context.
    """
    if cluster.is_exclusive:  # then the secrets end with the run
        return []
    security, known = cluster.security, list(hosts)
    found = []
    if _is_remote(known) and security.protocol == "SASL_PLAINTEXT":
        found.append(
            warning(
                CHECK,
                "security.protocol is SASL_PLAINTEXT, so the login and all data cross the network "
                "in the clear",
                "SASL_SSL for brokers on other hosts",
                "give the brokers a listener with TLS",
            )
        )
    for section in configured_sources(cluster):
        secret = section.unencrypted_secret()
        if secret is not None and _is_remote(section.contacted_hosts(known)):
            key, remedy = section.tls_hint()
            found.append(
                warning(
                    CHECK,
                    f"{section.key} has a {secret} and no TLS, so it crosses the network in the "
                    "clear",
                    f"{key} for other hosts",
                    remedy,
                )
            )
    crypto = any(settings.get(name, "false").strip().lower() == "true" for name in _ENCRYPTED)
    sends = any(_references(security)) or security.sasl_mechanism == "AWS_MSK_IAM"
    if not crypto and not master.startswith("local") and sends:
        found.append(
            warning(
                CHECK,
                "the secrets for the brokers are sent to Spark's executors in the clear",
                f"{_ENCRYPTED[0]}=true",
                "set it with spark.authenticate=true (spark-submit --conf …)",
            )
        )
    for key, path in _secret_files(cluster):
        if _others_can_write(path):
            found.append(
                warning(
                    CHECK,
                    f"others can write the file of {key}, {path}",
                    "a file that only its owner can change",
                    f"chmod go-w {path}",
                )
            )
    return found


def _is_remote(hosts: Iterable[str]) -> bool:
    return any(not _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _references(section: ConfigModel) -> Iterator[tuple[str, str]]:
    """The (key, reference) of each secret in a section."""
    for key in type(section).model_fields:
        if key.endswith("_from") and (reference := getattr(section, key)) is not None:
            yield key, reference


def _secret_files(cluster: Cluster) -> Iterator[tuple[str, Path]]:
    sections: dict[str, ConfigModel] = {"security": cluster.security}
    sections |= {section.key: section for section in configured_sources(cluster)}
    for name, section in sections.items():
        for key, reference in _references(section):
            kind, _, place = reference.partition(":")
            if kind == "file":
                yield f"{name}.{key}", Path(place).expanduser()
        keyfile: str | None = getattr(section, "keyfile", None)
        if keyfile is not None:
            yield f"{name}.keyfile", Path(keyfile).expanduser()


def _others_can_write(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # the code that reads the file reports it
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IWGRP | stat.S_IWOTH))
