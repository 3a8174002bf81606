"""Explanations of refused connections to brokers. Each explanation says what to check."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka import errors as kafka_errors

from metrics.sources.http_access import CertifiedServer, error_text, is_plaintext_error

_BROKER = CertifiedServer("broker", "security", "advertised.listeners")

_LOGIN_REMEDY = {
    "GSSAPI": "check the clocks, and whether the ticket's Kerberos principal is allowed to log in",
    None: "check the values to which security.username_from and security.password_from refer",
}

NO_GSSAPI = (
    "the package gssapi is not installed on {host}; expected the extra gssapi on the driver and on "
    "every executor; run pip install 'kafka-redline[gssapi]' there"
)


class LoginRequiredError(Exception):
    """A broker closed the connection at the first request, because it requires a login."""


class UnknownHostError(Exception):
    """A broker's host name has no address on this machine."""


class NotReachedError(Exception):
    """No address of a broker's host accepts a connection."""


class NoAnswerError(NotReachedError):
    """A broker's host did not answer in time."""


_TOO_MANY = re.compile(r"too many|rate exceeded|throttl|quota", re.IGNORECASE)
"""Texts of services that refuse a login because of a limit; for example MSK's Too many connects."""


def is_timeout(error: BaseException | None) -> bool:
    """Whether the error is a timeout."""
    kinds = (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError, NoAnswerError)
    return isinstance(error, kinds)


def is_closed_early(error: BaseException | None) -> bool:
    """Whether the broker may have closed a new connection because of a limit for connections."""
    if error is None:
        return False
    cause = _cause(error)
    if isinstance(cause, kafka_errors.SaslAuthenticationFailedError):
        return _TOO_MANY.search(_text_of(cause)) is not None
    kinds = (kafka_errors.KafkaConnectionError, ConnectionError, ssl.SSLEOFError)
    return isinstance(cause, (*kinds, ssl.SSLZeroReturnError))


@dataclass(frozen=True)
class Refused:
    """The facts about a broker that does not accept all connections.

    Attributes:
        took: number of opened connections.
        left: number of connections that are still to be opened.
        open_from_here: number of open connections from this host to the broker; None if unknown.
        passed_s: time since the opening began [s].
    """

    took: int
    left: int
    open_from_here: int | None
    passed_s: float

    def explain(self, error: BaseException) -> str | None:
        """A clause that names the limit for connections; None if the broker accepted no connection.

        Args:
            error: the last refusal.
        """
        if not self.took:
            return None
        if is_timeout(error):
            return (
                f"lets new connections wait: {self._open}, and no new connection was accepted in "
                f"time; expected a broker that accepts {self.left} more; raise max.connections or "
                "max.connection.creation.rate on the broker or its service, or use fewer producers"
            )
        if is_closed_early(error):
            return (
                f"closes new connections: {self._open}, and {self.left} more are needed "
                f"({_brief(_cause(error))}); expected a broker that accepts them all; raise "
                "max.connections.per.ip or max.connections on the broker or its service, or use "
                "fewer producers"
            )
        return (
            f"accepts new connections slowly: {self.took} of {self.took + self.left} in "
            f"{self.passed_s:.0f} s, {self.took / max(self.passed_s, 1e-3):.2g} per second; "
            f"expected all in this time; raise max.connection.creation.rate on the broker or its "
            "service, or use fewer producers"
        )

    @property
    def _open(self) -> str:
        if self.open_from_here is None:
            return f"{self.took} are open from this task"
        return f"{self.open_from_here} are open from this host"

    @property
    def hint(self) -> str:
        """Further advice if the broker refused all connections of this load, but has other open
        connections from this host.
        """
        if self.took or not self.open_from_here:
            return ""
        return f"; {self._open}, so check max.connections.per.ip and max.connections, too"


def explain_refusal(error: BaseException, options: Mapping[str, Any]) -> str:
    """Explain why a connection failed, what was expected, and what to check.

    Args:
        error: an error of Python's ssl module, of a socket or of kafka-python.
        options: connection options of kafka-python. Of these options, the explanation contains only
            the protocol and the mechanism.
    """
    error = _cause(error)
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    if isinstance(error, UnknownHostError):
        return (
            f"the name of the broker's host cannot be resolved on this host ({_brief(error)}); "
            "expected a name that this host and all executors can look up; correct "
            "advertised.listeners or the name service"
        )
    if isinstance(error, NotReachedError):
        return (
            f"the broker accepts no connection ({_brief(error)}); expected a broker that listens "
            "at this address; start it, or correct advertised.listeners or the firewall"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BROKER.explain_server_certificate(error)
    if isinstance(error, ssl.SSLError):
        return _explain_tls(error, options)
    if protocol.startswith("SASL_") or isinstance(error, LoginRequiredError):
        explanation = _explain_sasl(error, options)
        if explanation is not None:
            return explanation
    if isinstance(error, kafka_errors.KafkaTimeoutError | kafka_errors.RequestTimedOutError):
        return (
            f"the broker accepts connections, but does not answer over {protocol}; "
            f"{_CHECK_PROTOCOL}"
        )
    return (
        f"the broker accepts connections, but does not serve Kafka clients over {protocol} "
        f"({_brief(error)}); {_CHECK_PROTOCOL}"
    )


_CHECK_PROTOCOL = (
    "expected a broker's listener for this protocol; check the port and cluster security.protocol"
)


def _cause(error: BaseException) -> BaseException:
    """The error inside a connection error of kafka-python, such as a TLS error. If there is no
    inner error, the result is the given error itself.
    """
    inner = error.args[0] if error.args else None
    if isinstance(error, kafka_errors.KafkaConnectionError) and isinstance(inner, BaseException):
        return inner
    return error


def _explain_tls(error: ssl.SSLError, options: Mapping[str, Any]) -> str:
    if is_plaintext_error(error):
        protocol = options.get("security_protocol")
        return f"the broker's listener does not use TLS, which {protocol} needs; {_CHECK_PROTOCOL}"
    is_given = bool(options.get("ssl_certfile") or options.get("ssl_certificate_pem"))
    explanation = _BROKER.explain_client_certificate(error, is_given=is_given)
    return (
        explanation
        or f"TLS fails ({error_text(error)}); check the certificates and keys in cluster security"
    )


def _explain_sasl(error: BaseException, options: Mapping[str, Any]) -> str | None:
    """Explain a failed or a missing login; None for any other error."""
    mechanism = options.get("sasl_mechanism")
    protocol = options.get("security_protocol", "PLAINTEXT")
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        provider = options.get("sasl_oauth_token_provider")
        remedy = _LOGIN_REMEDY.get(mechanism, _LOGIN_REMEDY[None])
        return (
            f"the broker refuses the login by {mechanism} ({_brief(error)}); expected a user that "
            f"the broker knows; {getattr(provider, 'remedy', remedy)}"
        )
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return (
            f"the broker does not support the SASL mechanism {mechanism}; expected one of its "
            "sasl.enabled.mechanisms; change cluster security.sasl_mechanism"
        )
    if isinstance(error, LoginRequiredError):
        return (
            f"the broker's listener requires a login, and the protocol {protocol} has none; "
            "expected SASL_PLAINTEXT or SASL_SSL; change cluster security.protocol, or the port"
        )
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return (
            f"the broker's listener accepts no login, but {protocol} sends one; {_CHECK_PROTOCOL}"
        )
    if type(error).__module__.partition(".")[0] == "gssapi":
        # An error of MIT's Kerberos library, whose minor code names the cause.
        said = re.sub(r".*Minor \(\d+\): ", "", _text_of(error))
        service = options.get("sasl_kerberos_service_name")
        return (
            f"Kerberos gives no ticket for the broker's service {service} ({said[:200]}); expected "
            "a ticket (kinit, KRB5CCNAME) or a keytab (KRB5_CLIENT_KTNAME) on the driver and on "
            f"every executor, and in Kerberos a principal {service}/HOST for each broker's "
            "advertised host; provide them, or correct cluster security.kerberos_service_name"
        )
    if isinstance(error, RuntimeError) and mechanism == "GSSAPI":
        return NO_GSSAPI.format(host=socket.gethostname())
    return None


def _brief(error: BaseException) -> str:
    text = re.sub(r"^(\[Error -?\d+\] )?(\w+Error: )+", "", _text_of(error))
    return text[:200] or type(error).__name__


def _text_of(error: BaseException) -> str:
    return " ".join(str(error).split())
