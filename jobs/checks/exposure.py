"""Warnings about secrets of a cluster's file that other users can read, or that cross a network
without encryption.
"""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jobs.checks.finding import Finding, warning
from jobs.config import Cluster
from jobs.config.base import ConfigModel
from jobs.config.client_properties import KEY as CLIENT_PROPERTIES
from jobs.config.client_properties import provider_files
from jobs.config.metrics_registry import ExtensionSection, SourceSection

CHECK = "secrets"
_AUTHENTICATED = "spark.authenticate"
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def exposure_findings(
    cluster: Cluster, hosts: Iterable[str], settings: Mapping[str, str], master: str
) -> Iterator[Finding]:
    """Warnings about secrets that cross a network without encryption, or that other users can read
    or change.

    Args:
        hosts: the brokers' advertised hosts.
        settings: settings of the Spark context, by Spark's names.
        master: master URL of the Spark context.
    """
    if cluster.is_exclusive:  # the secrets of a testbed are valid only during the run
        return
    security, known = cluster.security, list(hosts)
    if _is_remote(known) and security.protocol == "SASL_PLAINTEXT":
        yield warning(
            CHECK,
            "security.protocol is SASL_PLAINTEXT, so the login and all data cross the network "
            "without encryption",
            "SASL_SSL for brokers on other hosts",
            "give the brokers a listener with TLS",
        )
    for section in cluster.sources:
        secret = section.unencrypted_secret()
        if secret is not None and _is_remote(section.contacted_hosts(known)):
            key, remedy = section.tls_hint()
            yield warning(
                CHECK,
                f"{section.key} has a {secret} and no TLS, so the {secret} crosses the network "
                "without encryption",
                f"{key} for hosts other than this machine",
                remedy,
            )
    sections: dict[str, ConfigModel] = {"security": security}
    sections |= {section.key: section for section in cluster.sources}
    for name, each in sections.items():
        own = each.contacted_hosts(known) if isinstance(each, SourceSection) else known
        if getattr(each, "check_hostname", True) is False and _is_remote(own):
            yield warning(
                CHECK,
                f"{name}.check_hostname is false, so any server with a certificate of a trusted "
                "authority receives the login",
                "true for hosts other than this machine",
                "issue certificates that name the hosts, and remove check_hostname",
            )
    yield from _spark_findings(settings, is_local=master.startswith("local"), cluster=cluster)
    for path, (key, is_secret) in _named_files(cluster, sections).items():
        yield from _file_findings(key, path, is_secret=is_secret)


def _is_remote(hosts: Iterable[str]) -> bool:
    return any(not _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _spark_findings(
    settings: Mapping[str, str], *, is_local: bool, cluster: Cluster
) -> Iterator[Finding]:
    """Warnings about the ports of Spark, if the driver sends secrets to executors."""
    security = cluster.security
    if not any(_references(security)) and security.sasl_mechanism != "AWS_MSK_IAM":
        return
    on = {name for name, value in settings.items() if value.strip().lower() == "true"}
    if _AUTHENTICATED not in on:
        yield warning(
            CHECK,
            "any program can connect to Spark's ports, and Spark's tasks contain the secrets for "
            "the brokers",
            f"{_AUTHENTICATED}=true",
            "use conf/spark/submit.properties (spark-submit --properties-file)",
        )
    if not is_local and on.isdisjoint(_ENCRYPTED):
        yield warning(
            CHECK,
            "the driver sends the secrets for the brokers to Spark's executors without encryption",
            f"{_ENCRYPTED[0]}=true",
            f"set {_ENCRYPTED[0]}=true and {_AUTHENTICATED}=true with spark-submit --conf",
        )


def _references(section: ConfigModel) -> Iterator[tuple[str, str]]:
    """Pairs (key, reference), one for each secret in a section."""
    for key in type(section).model_fields:
        if key.endswith("_from") and (reference := getattr(section, key)) is not None:
            yield key, reference
    if isinstance(section, ExtensionSection):
        yield from ((f"options.{name}", each) for name, each in section.options.items())


def _named_files(
    cluster: Cluster, sections: Mapping[str, ConfigModel]
) -> dict[Path, tuple[str, bool]]:
    """Path of a file → (key of the cluster's file that refers to this path, whether the file at the
    path contains a secret).
    """
    found: dict[Path, tuple[str, bool]] = {}

    def add(key: str, place: str, *, is_secret: bool) -> None:
        path = Path(place).expanduser()
        first, was_secret = found.get(path, (key, False))
        found[path] = first, is_secret or was_secret

    if cluster.client_properties is not None:
        add(CLIENT_PROPERTIES, cluster.client_properties, is_secret=True)
        for place in provider_files(cluster.client_properties):
            add(CLIENT_PROPERTIES, place, is_secret=True)
    for name, section in sections.items():
        for key, reference in _references(section):
            kind, _, place = reference.partition(":")
            if kind == "file":
                add(f"{name}.{key}", place, is_secret=True)
        for key in ("cafile", "oauth_cafile", "certfile", "keyfile"):
            given: str | None = getattr(section, key, None)
            if given is not None:
                # Without a keyfile the certfile contains the private key, too.
                is_store = getattr(section, "keyfile", None) is None
                has_key = key == "keyfile" or (key == "certfile" and is_store)
                add(f"{name}.{key}", given, is_secret=has_key)
    return found


def _file_findings(key: str, path: Path, *, is_secret: bool) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
    except OSError:  # the code that opens the file reports the error
        return
    if not stat.S_ISREG(mode):
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield warning(
            CHECK,
            f"{key} names {path}, which other users can change",
            "a file that only its owner can change",
            f"chmod go-w {path}",
        )
    elif is_secret and mode & stat.S_IROTH:
        yield warning(
            CHECK,
            f"{key} names {path}; this file contains a secret, and all users can read it",
            "a file that only its owner and its group can read",
            f"chmod o-rwx {path}",
        )
