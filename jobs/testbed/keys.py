"""Keys, certificates and users of a secured testbed; made at its start, deleted at its end.

Certificates come from keytool, which every Java has. Nothing here is worth stealing: it
opens a testbed on the loopback interface while that runs. It is kept as a secret all the
same, so that what is tried here holds elsewhere: files only their owner reads, nothing on
a command line.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from base64 import urlsafe_b64encode
from pathlib import Path

from jobs.testbed.keystore import Entry, build, parse, pem, private_key
from jobs.testbed.model import HOST, Spec
from search.errors import RedlineError

FOLDER = "security"
USER = "redline"
PASSWORD_OF_STORES = "changeit"
_VALID_DAYS = 365
_KEYTOOL_DEADLINE_S = 30.0
_OWNER_ONLY = 0o600


class KeytoolError(RedlineError):
    """keytool is missing, or did not do what it was asked to."""


class SecurityFiles:
    """Where a secured testbed keeps its keys and users: `security/` in its folder.

    Attributes:
        ca: PEM of the authority that signed the others.
        broker, client: PEM of a private key and its certificates.
        username, password, token: of the one user there is; the token is an unsecured JWT.
        jmx_password, jmx_access, jmx_tls: what the JVM's options point at.
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
        self.jmx_store = self.folder / "jmx.jks"


def make_security(spec: Spec, testbed_folder: Path) -> SecurityFiles:
    """Make everything that the testbed's listeners and JMX need.

    Raises:
        KeytoolError: there is no keytool, or it failed.
    """
    files = SecurityFiles(testbed_folder)
    files.folder.mkdir(mode=0o700)
    password = secrets.token_urlsafe(18)
    write_secret(files.username, USER)
    write_secret(files.password, password)
    write_secret(files.token, unsecured_token(USER, time.time(), _VALID_DAYS * 86_400.0))
    store = Keystore(files.folder / "keys.jks", spec.java)
    store.add_authority("ca")
    store.add("broker", f"san=ip:{HOST},dns:localhost")
    store.add("client", "eku=clientAuth")
    entries = store.entries()
    files.ca.write_text(certificates(entries["ca"]), encoding="ascii")
    for path, alias in ((files.broker, "broker"), (files.client, "client")):
        write_secret(path, store.key_pem(entries[alias]) + certificates(entries[alias]))
    write_secret(files.jmx_store, build([entries["broker"]], PASSWORD_OF_STORES))
    write_secret(files.jmx_password, f"{USER} {password}\n")
    write_secret(files.jmx_access, f"{USER} readonly\n")
    write_secret(
        files.jmx_tls,
        f"javax.net.ssl.keyStore={files.jmx_store}\n"
        f"javax.net.ssl.keyStorePassword={PASSWORD_OF_STORES}\n",
    )
    store.path.unlink()
    return files


class Keystore:
    """A keystore that keytool fills; each of its keys is signed by the authority's.

    Args:
        path: the file; it need not exist.
        java: the Java launcher, beside which keytool is.
    """

    def __init__(self, path: Path, java: str) -> None:
        self.path = path
        beside = Path(java).resolve().with_name("keytool")
        found = str(beside) if beside.exists() else shutil.which("keytool")
        if found is None:
            raise KeytoolError(
                f"no keytool is beside {java} or on the PATH, and a secured testbed makes its "
                "certificates with it; expected a complete Java 17; install one"
            )
        self._keytool = found

    def add_authority(self, alias: str) -> None:
        """A key whose certificate signs the others'."""
        self._generate(alias, ("-ext", "bc:c", "-ext", "ku=keyCertSign,cRLSign"))

    def add(
        self, alias: str, extension: str, signer: str = "ca", start: str = "-1d", days: int = 365
    ) -> None:
        """A key with a certificate.

        Args:
            alias: its name.
            extension: of X.509 as keytool writes them, for example `san=dns:localhost`.
            signer: alias of the authority.
            start, days: from when [keytool's -startdate] and for how long it is valid.
        """
        validity = ("-startdate", start, "-validity", str(days))
        self._generate(alias, ("-signer", signer, "-ext", extension, *validity))

    def entries(self) -> dict[str, Entry]:
        """What is in it."""
        return parse(self.path.read_bytes())

    def key_pem(self, entry: Entry) -> str:
        """The entry's private key in PEM, unencrypted."""
        return pem("PRIVATE KEY", private_key(entry, PASSWORD_OF_STORES))

    def _generate(self, alias: str, options: tuple[str, ...]) -> None:
        command = [self._keytool, "-genkeypair", "-storetype", "JKS", "-keystore", str(self.path)]
        command += ["-storepass", PASSWORD_OF_STORES, "-keypass", PASSWORD_OF_STORES]
        command += ["-alias", alias, "-dname", f"CN=redline testbed {alias}"]
        command += ["-keyalg", "EC", "-groupname", "secp256r1", *options]
        try:
            subprocess.run(
                command,
                check=True,
                timeout=_KEYTOOL_DEADLINE_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except subprocess.CalledProcessError as error:
            said = " ".join(error.stdout.decode(errors="replace").split())[:300]
            raise KeytoolError(f"keytool made no certificate for {alias}: {said}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KeytoolError(f"keytool made no certificate for {alias}: {error}") from error
        self.path.chmod(_OWNER_ONLY)


def certificates(entry: Entry) -> str:
    """The certificates of an entry in PEM, its own first."""
    return "".join(pem("CERTIFICATE", each) for each in entry.chain)


def write_secret(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    data = content.encode() if isinstance(content, str) else content
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
    with open(descriptor, "wb") as stream:  # noqa: PTH123 - of a descriptor
        stream.write(data)


def unsecured_token(user: str, now_s: float, valid_s: float) -> str:
    """A JSON Web Token without a signature, as Kafka's validator for tests takes it."""
    claims = {"sub": user, "iat": int(now_s) - 60, "exp": int(now_s + valid_s)}
    parts = ({"alg": "none"}, claims)
    encoded = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join([*encoded, ""])
