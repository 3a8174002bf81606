"""The listeners of a broker: a plain listener for the testbed, and secured listeners for clients.

Brokers and the supervisor always use the plain listener, so that a secured testbed starts,
replicates and is monitored like any other testbed.

The credentials of a secured testbed (keys, certificates and users) are created at its start and
deleted at its end. The credentials of a testbed protect only brokers on the loopback interface. The
credentials are nevertheless handled like secrets: only the owner can read the files, and no command
line contains a credential.
"""

from __future__ import annotations

import json
import secrets
import time
from base64 import urlsafe_b64encode
from pathlib import Path

import javaproperties
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from jobs.testbed.model import HOST, Node, Spec
from metrics.reporting.files import write_private

FOLDER = "security"
USER = "redline"
PASSWORD_OF_STORES = "changeit"
_VALID_S = 365 * 86_400.0
_ORGANIZATION = "kafka-redline testbed"


class SecurityFiles:
    """The files with a secured testbed's keys and users, in `security/` of the testbed's folder.

    Attributes:
        ca: PEM file of the authority that signed the certificates.
        broker: PEM file with the private key of all brokers, and with the certificates of this key.
        client: PEM file with the private key of all clients, and with the certificates of this key.
        username, password, token: files with the credentials of the only user; the token is an
            unsecured JWT.
        jmx_password, jmx_access, jmx_tls: files for the JVM's options of JMX.
        jmx_store: keystore of the brokers' JMX.
    """

    def __init__(self, testbed_folder: Path) -> None:
        self.folder = testbed_folder / FOLDER
        self.ca = self.folder / "ca.pem"
        self.broker = self.folder / "broker.pem"
        self.client = self.folder / "client.pem"
        self.username = self.folder / "username"
        self.password = self.folder / "password"
        self.token = self.folder / "token"
        self.jmx_password = self.folder / "jmxremote.password"
        self.jmx_access = self.folder / "jmxremote.access"
        self.jmx_tls = self.folder / "jmxremote.properties"
        self.jmx_store = self.folder / "jmx.p12"

    @property
    def login(self) -> dict[str, object]:
        """Key of a cluster file → the file with the user's name or password."""
        return {"username_from": f"file:{self.username}", "password_from": f"file:{self.password}"}


def make_security(testbed_folder: Path, host: str = HOST) -> SecurityFiles:
    """Create all files for the testbed's listeners and JMX at the address `host`."""
    files = SecurityFiles(testbed_folder)
    files.folder.mkdir(mode=0o700)
    password = secrets.token_urlsafe(18)
    write_private(files.username, USER)
    write_private(files.password, password)
    write_private(files.token, unsecured_token(USER, time.time(), _VALID_S))
    authority = trustme.CA(organization_name=_ORGANIZATION)
    broker = authority.issue_cert(host, "localhost", organization_name=_ORGANIZATION)
    client = authority.issue_cert("localhost", common_name=USER, organization_name=_ORGANIZATION)
    files.ca.write_bytes(authority.cert_pem.bytes())
    write_private(files.broker, key_and_certificates(broker))
    write_private(files.client, key_and_certificates(client))
    write_jmx_tls(broker, files.jmx_store, files.jmx_tls)
    write_private(files.jmx_password, f"{USER} {password}\n")
    write_private(files.jmx_access, f"{USER} readonly\n")
    return files


def write_jmx_tls(leaf: trustme.LeafCert, store: Path, properties: Path) -> None:
    """Write a keystore, and the properties file for the JVM's jmxremote.ssl.config.file."""
    own, *chain = (load_pem_x509_certificate(each.bytes()) for each in leaf.cert_chain_pems)
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey), "trustme makes elliptic-curve keys"
    sealed = serialization.BestAvailableEncryption(PASSWORD_OF_STORES.encode())
    write_private(store, pkcs12.serialize_key_and_certificates(b"broker", key, own, chain, sealed))
    given = {
        "javax.net.ssl.keyStore": str(store),
        "javax.net.ssl.keyStorePassword": PASSWORD_OF_STORES,
    }
    write_private(properties, javaproperties.dumps(given, timestamp=None))


def key_and_certificates(leaf: trustme.LeafCert) -> bytes:
    """A private key and its certificates as PEM; the key is in PKCS #8, which Kafka requires."""
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem + b"".join(each.bytes() for each in leaf.cert_chain_pems)


def unsecured_token(user: str, now_s: float, valid_s: float) -> str:
    """A JSON Web Token without a signature; Kafka's validator for tests accepts such a token."""
    claims = {"sub": user, "iat": int(now_s) - 60, "exp": int(now_s + valid_s)}
    parts = ({"alg": "none"}, claims)
    encoded = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join([*encoded, ""])


_JAAS = "org.apache.kafka.common.security"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
"""The SASL mechanisms of a listener with a login; the testbed's only user may use each of them."""


def listener_properties(node: Node) -> dict[str, str]:
    """The properties of all listeners of a broker, including passwords."""
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
        # With a secured listener, Kafka requires the protocol of each listener.
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
    """The options of `kafka.tools.StorageTool format` that create the SCRAM user."""
    if not any(protocol.startswith("SASL_") for protocol in spec.security):
        return []
    password = files.password.read_text(encoding="utf-8")
    return [
        part
        for mechanism in SCRAM_MECHANISMS
        for part in ("--add-scram", f"{mechanism}=[name={USER},password={password}]")
    ]


def security_part(files: SecurityFiles, protocol: str, mechanism: str) -> dict[str, object]:
    """The security settings of a client: the section `security` of a cluster's file.

    Args:
        files: the testbed's files.
        protocol: protocol of the listener.
        mechanism: one of `MECHANISMS`; ignored if the protocol has no login.
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
            settings |= files.login
    return settings
