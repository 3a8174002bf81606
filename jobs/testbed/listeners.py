"""What a broker listens on: plain for the testbed itself, and secured for its clients.

Brokers and the supervisor talk over a plain listener of this machine whatever
clients speak, so a secured testbed starts, replicates and is watched as any other.
"""

from __future__ import annotations

from pathlib import Path

from jobs.config.security import Security
from jobs.testbed.keys import USER, SecurityFiles
from jobs.testbed.model import Node, Spec

_JAAS = "org.apache.kafka.common.security"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
"""What a listener with a login offers, all with the testbed's one user."""


def listener_properties(node: Node) -> dict[str, str]:
    """All listeners of a broker and what they need; passwords included."""
    places = {"PLAINTEXT": node.port, **node.secured_ports}
    listeners = ",".join(f"{name}://{node.host}:{port}" for name, port in places.items())
    properties = {"listeners": listeners, "advertised.listeners": listeners}
    files = SecurityFiles(Path(node.directory).parent)
    if node.secured_ports:
        # Once there is a secured one, Kafka wants to be told of each.
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
        # Without another validator Kafka takes unsecured tokens, which are for tests only.
        "OAUTHBEARER": f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required;",
    }
    properties = {
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": module
        for mechanism, module in modules.items()
    }
    return {"sasl.enabled.mechanisms": ",".join(MECHANISMS), **properties}


def scram_arguments(spec: Spec, files: SecurityFiles) -> list[str]:
    """Options of `kafka.tools.StorageTool format` that make the user known for SCRAM."""
    if not any(protocol.startswith("SASL_") for protocol in spec.security):
        return []
    password = files.password.read_text(encoding="utf-8")
    return [
        part
        for mechanism in SCRAM_MECHANISMS
        for part in ("--add-scram", f"{mechanism}=[name={USER},password={password}]")
    ]


def client_security(files: SecurityFiles, protocol: str, mechanism: str) -> Security:
    """What a client configures to get in; see `security_part`."""
    return Security.model_validate(security_part(files, protocol, mechanism))


def security_part(files: SecurityFiles, protocol: str, mechanism: str) -> dict[str, object]:
    """What a client configures to get in, as the `security` part of a file of conf/clusters.

    Args:
        files: the testbed's.
        protocol: of the listener.
        mechanism: one of `MECHANISMS`; used where the protocol has a login.
    """
    wanted: dict[str, object] = {"protocol": protocol}
    if protocol.endswith("SSL"):
        wanted["cafile"] = str(files.ca)
    if protocol == "SSL":
        wanted |= {"certfile": str(files.client), "keyfile": str(files.client)}
    if protocol.startswith("SASL_"):
        wanted["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            wanted["token_from"] = f"file:{files.token}"
        else:
            wanted |= {
                "username_from": f"file:{files.username}",
                "password_from": f"file:{files.password}",
            }
    return wanted
