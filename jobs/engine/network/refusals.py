"""Why a broker and we do not come together, in a sentence that says what to check."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from kafka import errors as kafka_errors

from metrics.sources.certificates import CertifiedServer, said, speaks_no_tls

_BROKER = CertifiedServer("broker", "security", "advertised.listeners")

_LOGIN_REMEDY = {
    "GSSAPI": "check that the principal of the Kerberos ticket may log in, and the clocks",
    None: "check what cluster security.username_from and security.password_from point at",
}

NO_GSSAPI = (
    "the package gssapi is not installed on {host}; expected the extra gssapi on the "
    "driver and on every executor; pip install 'kafka-redline[gssapi]' there"
)


class LoginRequiredError(Exception):
    """A broker took the connection and hung up at the first request without a login."""


class UnknownHostError(Exception):
    """The name of a broker's host has no address here."""


class NotReachedError(Exception):
    """No address of a broker's host takes connections."""


def why_not(error: BaseException, options: Mapping[str, Any]) -> str:
    """What went wrong while a connection was opened, what was expected, and what to check.

    Args:
        error: as Python's ssl, the socket or kafka-python raised it.
        options: connection options of kafka-python; no value of theirs is repeated but the
            protocol and the mechanism.
    """
    error = _cause(error)
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    if isinstance(error, UnknownHostError):
        return (
            f"the name of its host is not resolved here ({_brief(error)}); expected one that this "
            "host and all executors can look up; correct advertised.listeners or the name service"
        )
    if isinstance(error, NotReachedError):
        return (
            f"it takes no connection ({_brief(error)}); expected a broker that listens there; "
            "start it, or correct advertised.listeners or the firewall"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BROKER.why_refused(error)
    if isinstance(error, ssl.SSLError):
        return _tls(error, options)
    if protocol.startswith("SASL_") or isinstance(error, LoginRequiredError):
        said = _sasl(error, options)
        if said is not None:
            return said
    if isinstance(error, kafka_errors.KafkaTimeoutError | kafka_errors.RequestTimedOutError):
        return f"it takes connections and does not answer as {protocol}; {_CHECK_PROTOCOL}"
    return (
        f"it takes connections, but no Kafka broker that speaks {protocol} lets us in "
        f"({_brief(error)}); {_CHECK_PROTOCOL}"
    )


_CHECK_PROTOCOL = (
    "expected a broker's listener of that kind; check the port and cluster security.protocol"
)


def _cause(error: BaseException) -> BaseException:
    """kafka-python hands TLS errors on as the argument of its own."""
    inner = error.args[0] if error.args else None
    if isinstance(error, kafka_errors.KafkaConnectionError) and isinstance(inner, BaseException):
        return inner
    return error


def _tls(error: ssl.SSLError, options: Mapping[str, Any]) -> str:
    if speaks_no_tls(error):
        protocol = options.get("security_protocol")
        return f"its listener does not speak TLS, as {protocol} needs; {_CHECK_PROTOCOL}"
    is_given = options.get("ssl_certfile") is not None
    told = _BROKER.why_none_of_ours(error, is_given=is_given)
    return told or f"TLS fails ({said(error)}); check the files of cluster security"


def _sasl(error: BaseException, options: Mapping[str, Any]) -> str | None:
    """Of a login, or of none that is wanted; None for another error."""
    mechanism = options.get("sasl_mechanism")
    protocol = options.get("security_protocol", "PLAINTEXT")
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return _login(error, options)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return (
            f"it does not offer the SASL mechanism {mechanism}; expected one "
            "of its sasl.enabled.mechanisms; change cluster security.sasl_mechanism"
        )
    if isinstance(error, LoginRequiredError):
        return (
            f"its listener wants a login, and {protocol} has none; expected protocol "
            "SASL_PLAINTEXT or SASL_SSL for it; change cluster security.protocol, or the port"
        )
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return f"its listener wants no login, but {protocol} has one; {_CHECK_PROTOCOL}"
    if type(error).__module__.partition(".")[0] == "gssapi":
        return _kerberos(error, options)
    if isinstance(error, RuntimeError) and mechanism == "GSSAPI":
        return NO_GSSAPI.format(host=socket.gethostname())
    return None


def _login(error: Exception, options: Mapping[str, Any]) -> str:
    mechanism = options.get("sasl_mechanism")
    provider = options.get("sasl_oauth_token_provider")
    remedy = _LOGIN_REMEDY.get(mechanism, _LOGIN_REMEDY[None])
    return (
        f"it refuses the login by {mechanism} ({_brief(error)}); expected a user that it knows; "
        f"{getattr(provider, 'remedy', remedy)}"
    )


def _kerberos(error: BaseException, options: Mapping[str, Any]) -> str:
    """Of MIT's library, whose minor code says what is wrong."""
    said = re.sub(r".*Minor \(\d+\): ", "", _words(error))
    service = options.get("sasl_kerberos_service_name")
    return (
        f"Kerberos gives no ticket for its service {service} ({said[:200]}); expected a ticket of "
        "this host's user (kinit, and KRB5CCNAME), or a keytab in KRB5_CLIENT_KTNAME, on the "
        f"driver and on every executor, and a principal {service}/HOST for each broker's "
        "advertised host; see to them, or correct cluster security.kerberos_service_name"
    )


def _brief(error: BaseException) -> str:
    text = re.sub(r"^(\[Error -?\d+\] )?(\w+Error: )+", "", _words(error))
    return text[:200] or type(error).__name__


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())
