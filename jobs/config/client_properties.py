"""A properties file of Kafka's own clients, with a cluster's addresses and its security.

Its properties become keys of a cluster. Secrets stay in the file: the keys refer to them as
`properties:FILE#NAME`, and they are read when a connection is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import javaproperties

from metrics.common.errors import ConfigError

KEY = "client_properties"
REFERENCE = "properties"

_JAAS = "sasl.jaas.config"
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_PREFIXES = ("security.", "sasl.", "ssl.")
_NO_EFFECT = re.compile(
    r"sasl\.kerberos\.(kinit\.cmd|ticket\.renew\..*|min\.time\.before\.relogin)"
    r"|sasl\.login\.(refresh|connect|read|retry|callback)\..*"
    r"|sasl\.oauthbearer\.(expected|jwks|header|sub\.claim|scope\.claim|clock).*"
    r"|ssl\.(enabled\.protocols|protocol|cipher\.suites|provider|secure\.random.*|engine.*"
    r"|keymanager.*|trustmanager.*|(truststore|keystore)\.(type|password))"
    r"|security\.providers|sasl\.client\.callback\.handler\.class"
)
"""Properties of Java's own TLS and login, or of checks on brokers. Connections here work without
them."""


def keys_of(path: str) -> dict[str, Any]:
    """The keys of a cluster that a file supplies: `bootstrap_servers` and `security`.

    Raises:
        ConfigError: the file cannot be read, or has a property that is not supported.
    """
    given = read(path)
    servers = [each.strip() for each in given.get("bootstrap.servers", "").split(",")]
    found: dict[str, Any] = {"bootstrap_servers": [each for each in servers if each]}
    security = dict(_security(path, given))
    return {key: each for key, each in {**found, "security": security}.items() if each}


def read(path: str) -> dict[str, str]:
    """Read the properties of a file.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        return dict(javaproperties.loads(text))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cluster {KEY} is {path}, which cannot be read ({why}); expected a file of "
            "properties as Kafka's own tools take it with --command-config; correct the path"
        ) from None


def secret(place: str) -> str:
    """The value of `FILE#NAME`, a property or an option of sasl.jaas.config; empty if missing."""
    path, _, name = place.rpartition("#")
    given = read(path)
    return given.get(name) or _jaas(given).get(name, "")


def _jaas(given: Mapping[str, str]) -> dict[str, str]:
    """The options of sasl.jaas.config, with escapes in their values resolved."""
    found = {}
    for match in _JAAS_OPTION.finditer(given.get(_JAAS, "")):
        text = next(each for each in match.groups()[1:] if each is not None)
        found[match[1]] = re.sub(r"\\(.)", r"\1", text)
    return found


_PLAIN: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "security.protocol": ("protocol", str.upper),
    "sasl.mechanism": ("sasl_mechanism", str),
    "sasl.oauthbearer.token.endpoint.url": ("oauth_token_url", str),
    "sasl.kerberos.service.name": ("kerberos_service_name", str),
    "ssl.endpoint.identification.algorithm": ("check_hostname", bool),
}
"""Kafka's property → the key here, and the conversion of its value."""


def _security(path: str, given: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The keys of `security` from the properties of the connection."""
    for name, value in given.items():
        if name in _PLAIN:
            key, convert = _PLAIN[name]
            yield key, convert(value)
        elif name == "ssl.key.password":
            yield "key_password_from", _reference(path, name)
        elif name in {"ssl.truststore.location", "ssl.keystore.location"}:
            yield from _files(path, name, given)
        elif name == _JAAS:
            yield from _login(path, given)
        elif name.startswith(_PREFIXES) and _NO_EFFECT.fullmatch(name) is None:
            raise _unsupported(path, name, "only properties that the clients here support")


def _reference(path: str, name: str) -> str:
    return f"{REFERENCE}:{path}#{name}"


def _files(path: str, name: str, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The keys for the PEM file of a truststore or a keystore."""
    kind = name.replace("location", "type")
    if given.get(kind, "JKS").upper() != "PEM":
        raise _unsupported(
            path,
            f"{name} with {kind} {given.get(kind, 'JKS')}",
            f"{kind}=PEM, as the clients here read PEM files; convert it with keytool "
            "-importkeystore -deststoretype PKCS12 and openssl pkcs12",
        )
    if "truststore" in name:
        yield "cafile", given[name]
    else:
        yield "certfile", given[name]
        yield "keyfile", given[name]


def _login(path: str, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The keys for the login in sasl.jaas.config."""
    jaas, mechanism = _jaas(given), given.get("sasl.mechanism")
    if mechanism == "GSSAPI":
        yield from _kerberos(path, jaas)
        return
    if mechanism == "AWS_MSK_IAM":
        yield "aws_region", _region(path, given, jaas)
        return
    needed = {"username": "username_from", "password": "password_from"}
    if mechanism == "OAUTHBEARER":
        needed = {"clientId": "oauth_client_id_from", "clientSecret": "oauth_client_secret_from"}
        if "scope" in jaas:
            yield "oauth_scope", jaas["scope"]
    for option, key in needed.items():
        if option not in jaas:
            raise _unsupported(path, f"{_JAAS} without {option}", f"{option}=… in it")
        yield key, _reference(path, option)


def _kerberos(path: str, jaas: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The key for the service; tickets come from the Kerberos settings of each host."""
    if "keyTab" in jaas:
        raise _unsupported(
            path,
            f"{_JAAS} with keyTab",
            "no keytab in this file; use a ticket cache, or KRB5_CLIENT_KTNAME on the driver and "
            "on every executor",
        )
    if "serviceName" in jaas:
        yield "kerberos_service_name", jaas["serviceName"]


_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def _region(path: str, given: Mapping[str, str], jaas: Mapping[str, str]) -> str:
    """The AWS region in the host names of MSK brokers, as AWS's own login module derives it."""
    for option in jaas:
        if option.startswith("aws"):
            raise _unsupported(
                path,
                f"{_JAAS} with {option}",
                "no credentials in this file; use AWS's own chain of credentials, such as "
                "AWS_PROFILE in the environment",
            )
    found = _MSK_HOST.search(given.get("bootstrap.servers", ""))
    if found is None:
        raise _unsupported(
            path,
            "sasl.mechanism AWS_MSK_IAM and bootstrap.servers without a region in its names",
            "brokers such as b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com:9098",
        )
    return found[1]


def _unsupported(path: str, found: str, expected: str) -> ConfigError:
    return ConfigError(
        f"cluster {KEY} is {path}, which has {found}; expected {expected}; change the file, or "
        "describe the connection by keys of security instead of client_properties"
    )
