"""How JMX is opened where it is closed: a user, a password, certificates to trust."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from search.errors import ConfigError


@dataclass(frozen=True)
class JmxAccess:
    """What all brokers' JMX asks for.

    Attributes:
        username, password: as in jmxremote.password; None where JMX has no password.
        is_tls: whether the registry and the objects speak TLS.
        cafile: PEM file of the certificates to trust besides those that Java trusts.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    is_tls: bool = False
    cafile: str | None = None

    def trusted(self) -> list[bytes]:
        """The certificates of `cafile` in DER.

        Raises:
            ConfigError: there are none.
        """
        if self.cafile is None:
            return []
        try:
            text = Path(self.cafile).expanduser().read_text(encoding="ascii")
            found = [ssl.PEM_cert_to_DER_cert(each) for each in _CERTIFICATE.findall(text)]
        except (OSError, ValueError) as error:
            raise _unusable(self.cafile, str(error)) from error
        if not found:
            raise _unusable(self.cafile, "it holds no certificate")
        return found


def remedy_of_lock(error: str) -> str | None:
    """What to do when JMX is there and closed to us, by its error's text; None otherwise.

    The first sign counts: a failed login says more when it had no password.
    """
    for sign, remedy in _LOCKS.items():
        if sign in error:
            return remedy
    return None


_LOCKS = {
    "Credentials required": "wants a password; expected jmx.username_from and jmx.password_from; "
    "add them to the cluster's file",
    "Authentication failed": "refuses the password; expected one of its jmxremote.password; check "
    "what jmx.username_from and jmx.password_from point at",
    "non-JRMP server": "speaks TLS in its registry; expected jmx.tls: true; add it to the "
    "cluster's file",
    "PKIX path": "has a certificate that is not trusted; expected one signed by an authority in "
    "jmx.cafile; name the authority's PEM file there",
    "Unsupported or unrecognized SSL message": "does not speak TLS in its registry; expected "
    "-Dcom.sun.management.jmxremote.registry.ssl=true at the broker, or jmx.tls: false",
}

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)


def _unusable(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"cluster jmx.cafile is {path}, which cannot be used: {why}; expected a PEM file of "
        "certificates; correct the path"
    )
