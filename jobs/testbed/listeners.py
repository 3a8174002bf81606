"""The listeners of a broker: a plain one for the testbed itself, and secured ones for clients.

Brokers and the supervisor always use the plain listener, so a secured testbed starts, replicates
and is watched like any other.
"""

from __future__ import annotations

from pathlib import Path

from jobs.config.security import Security
from jobs.testbed.keys import USER, SecurityFiles
from jobs.testbed.model import Node, Spec

_JAAS = "org.apache.kafka.common.security"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
"""The mechanisms of a listener with a login, all for the testbed's only user."""


def listener_properties(node: Node) -> dict[str, str]:
    """The properties of all listeners of a broker, passwords included."""
    places = {"PLAINTEXT": node.port, **node.secured_ports}
    listeners = [f"{name}://{node.host}:{port}" for name, port in places.items()]
    own = (
        [] if node.controller_port is None else [f"CONTROLLER://{node.host}:{node.controller_port}"]
    )
    properties = {
        "listeners": ",".join([*listeners, *own]),
        "advertised.listeners": ",".join(listeners),
    }
    files = SecurityFiles(Path(node.directory).parent)
    if node.secured_ports:
        # With a secured listener, Kafka needs the protocol of each listener.
        kinds = {"CONTROLLER": "PLAINTEXT", **{name: name for name in places}}
        properties["listener.security.protocol.map"] = ",".join(
            f"{name}:{kind}" for name, kind in kinds.items()
        )
    for protocol in node.secured_ports:
        if protocol.endswith("SSL"):
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(files.broker),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(files.ca),
            }
        if protocol == "SSL":
            properties["listener.name.ssl.ssl.client.auth"] = "required"
        else:
            password = files.password.read_text(encoding="utf-8")
            properties |= _login_properties(protocol.lower(), password)
    return properties


def _login_properties(listener: str, password: str) -> dict[str, str]:
    modules = {
        "PLAIN": f'{_JAAS}.plain.PlainLoginModule required user_{USER}="{password}";',
        **dict.fromkeys(SCRAM_MECHANISMS, f"{_JAAS}.scram.ScramLoginModule required;"),
        # Kafka's default validator accepts unsecured tokens, which are for tests only.
        "OAUTHBEARER": f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required;",
    }
    properties = {
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": module
        for mechanism, module in modules.items()
    }
    return {"sasl.enabled.mechanisms": ",".join(MECHANISMS), **properties}


def scram_arguments(spec: Spec, files: SecurityFiles) -> list[str]:
    """Options of `kafka.tools.StorageTool format` that create the user for SCRAM."""
    if not any(protocol.startswith("SASL_") for protocol in spec.security):
        return []
    password = files.password.read_text(encoding="utf-8")
    return [
        part
        for mechanism in SCRAM_MECHANISMS
        for part in ("--add-scram", f"{mechanism}=[name={USER},password={password}]")
    ]


def client_security(files: SecurityFiles, protocol: str, mechanism: str) -> Security:
    """The security settings of a client; see `security_part`."""
    return Security.model_validate(security_part(files, protocol, mechanism))


def security_part(files: SecurityFiles, protocol: str, mechanism: str) -> dict[str, object]:
    """The security settings of a client, as the section `security` of a cluster file.

    Args:
        files: the testbed's files.
        protocol: protocol of the listener.
        mechanism: one of `MECHANISMS`; used where the protocol has a login.
    """
    settings: dict[str, object] = {"protocol": protocol}
    if protocol.endswith("SSL"):
        settings["cafile"] = str(files.ca)
    if protocol == "SSL":
        settings |= {"certfile": str(files.client), "keyfile": str(files.client)}
    if protocol.startswith("SASL_"):
        settings["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            settings["token_from"] = f"file:{files.token}"
        else:
            settings |= {
                "username_from": f"file:{files.username}",
                "password_from": f"file:{files.password}",
            }
    return settings
