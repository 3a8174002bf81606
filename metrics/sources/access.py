"""Access to JMX that requires a login or TLS: a user, a password, certificates to trust."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from metrics.sources.http_access import unusable_file

ANSWERS = ";".join(
    (
        "maxdepth=20",
        "maxarray=100000",
        "maxrefs=1000000",
        "java.lang.*",
        "java.math.*",
        "java.util.*",
        "java.io.*",
        "java.rmi.*",
        "java.rmi.dgc.*",
        "java.rmi.server.*",
        "javax.management.*",
        "javax.management.openmbean.*",
        "javax.management.remote.*",
        "javax.management.remote.rmi.*",
        "javax.rmi.ssl.*",
        "javax.security.auth.login.*",
        "java.security.GeneralSecurityException",
        "!*",
    )
)
"""The classes that answers of JMX may have, as a pattern of Java's jdk.serialFilter: numbers,
texts, collections, open types, stubs and errors."""


@dataclass(frozen=True)
class JmxAccess:
    """The login and the TLS settings for the JMX of all brokers.

    Attributes:
        username, password: an entry of jmxremote.password; None where JMX has no password.
        is_tls: whether the registry and the objects speak TLS.
        cafile: PEM file of the certificates to trust; Java's default authorities when None.
        check_hostname: whether a certificate must name the host of its address.
    """

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    is_tls: bool = False
    cafile: str | None = None
    check_hostname: bool = True

    def trusted(self) -> list[bytes]:
        """The certificates of `cafile` in DER; empty without a file.

        Raises:
            ConfigError: the file has no certificate, or cannot be read.
        """
        if self.cafile is None:
            return []
        try:
            text = Path(self.cafile).expanduser().read_text(encoding="ascii")
            found = [ssl.PEM_cert_to_DER_cert(each) for each in _CERTIFICATE.findall(text)]
        except (OSError, ValueError) as error:
            raise unusable_file("jmx.cafile", self.cafile, str(error), "of certificates") from error
        if not found:
            why = "it holds no certificate"
            raise unusable_file("jmx.cafile", self.cafile, why, "of certificates")
        return found


_FOREIGN = (
    "answers with objects that no reading has; expected numbers and texts of Kafka's beans; check "
    "which program runs there"
)
_ANOTHER_HOST = (
    "has a certificate for another host; expected one that names the host of its address; "
    "correct the certificate, the broker's -Djava.rmi.server.hostname or jmx.endpoints "
    "(jmx.check_hostname: false trusts any name)"
)
LOCKS = {
    "Credentials required": "requires a password; expected jmx.username_from and "
    "jmx.password_from; add them to the cluster's file",
    "Authentication failed": "refuses the password; expected one of its jmxremote.password; check "
    "the values that jmx.username_from and jmx.password_from point at",
    "non-JRMP server": "speaks TLS in its registry; expected jmx.tls: true; add it to the "
    "cluster's file",
    "SecurityException: refused ": _FOREIGN,
    "filter status: REJECTED": _FOREIGN,
    "ClassNotFoundException: ": _FOREIGN,
    "validity check failed": "has a certificate that is not valid now; expected one within its "
    "dates; renew it, or check the clocks of both hosts",
    "No subject alternative": _ANOTHER_HOST,
    "No name matching": _ANOTHER_HOST,
    "PKIX path": "has a certificate that is not trusted; expected one signed by an authority in "
    "jmx.cafile, or by one that Java trusts when that key is left out; name the authority's PEM "
    "file there",
    "Unsupported or unrecognized SSL message": "does not speak TLS in its registry; expected "
    "-Dcom.sun.management.jmxremote.registry.ssl=true at the broker, or jmx.tls: false",
}
"""Sign in the text of a Java exception → the remedy where JMX answers and refuses access. The first
sign counts, as the text of a failed login has two when it had no password."""

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)
