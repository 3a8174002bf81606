"""Explanations of refused connections to brokers, each a sentence that states what to check."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from kafka import errors as kafka_errors

from metrics.sources.certificates import CertifiedServer, error_text, is_plaintext_error

_BROKER = CertifiedServer("broker", "security", "advertised.listeners")

_LOGIN_REMEDY = {
    "GSSAPI": "check that the principal of the Kerberos ticket may log in, and the clocks",
    None: "check the values that cluster security.username_from and security.password_from name",
}

NO_GSSAPI = (
    "the package gssapi is not installed on {host}; expected the extra gssapi on the "
    "driver and on every executor; pip install 'kafka-redline[gssapi]' there"
)


class LoginRequiredError(Exception):
    """A broker closed the connection at the first request, as it requires a login."""


class UnknownHostError(Exception):
    """A broker's host name that has no address on this machine."""


class NotReachedError(Exception):
    """A broker's host that takes connections at no address."""


def explain_refusal(error: BaseException, options: Mapping[str, Any]) -> str:
    """Explain why a connection failed, what was expected, and what to check.

    Args:
        error: the error of Python's ssl module, of the socket or of kafka-python.
        options: connection options of kafka-python; of their values, the text repeats only the
            protocol and the mechanism.
    """
    error = _cause(error)
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    if isinstance(error, UnknownHostError):
        return (
            f"the name of its host is not resolved here ({_brief(error)}); expected a name that "
            "this host and all executors can look up; correct advertised.listeners or the name "
            "service"
        )
    if isinstance(error, NotReachedError):
        return (
            f"it takes no connection ({_brief(error)}); expected a broker that listens there; "
            "start it, or correct advertised.listeners or the firewall"
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
        return f"it takes connections and does not answer by {protocol}; {_CHECK_PROTOCOL}"
    return (
        f"it takes connections, and it does not serve Kafka clients by {protocol} "
        f"({_brief(error)}); {_CHECK_PROTOCOL}"
    )


_CHECK_PROTOCOL = (
    "expected a broker's listener of that kind; check the port and cluster security.protocol"
)


def _cause(error: BaseException) -> BaseException:
    """The TLS error that kafka-python wraps in its own, or else the error itself."""
    inner = error.args[0] if error.args else None
    if isinstance(error, kafka_errors.KafkaConnectionError) and isinstance(inner, BaseException):
        return inner
    return error


def _explain_tls(error: ssl.SSLError, options: Mapping[str, Any]) -> str:
    if is_plaintext_error(error):
        protocol = options.get("security_protocol")
        return f"its listener does not use TLS, which {protocol} needs; {_CHECK_PROTOCOL}"
    is_given = options.get("ssl_certfile") is not None
    explanation = _BROKER.explain_client_certificate(error, is_given=is_given)
    return explanation or f"TLS fails ({error_text(error)}); check the files of cluster security"


def _explain_sasl(error: BaseException, options: Mapping[str, Any]) -> str | None:
    """Explain a failed or a missing login; None for another error."""
    mechanism = options.get("sasl_mechanism")
    protocol = options.get("security_protocol", "PLAINTEXT")
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return _explain_login(error, options)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return (
            f"it does not offer the SASL mechanism {mechanism}; expected one "
            "of its sasl.enabled.mechanisms; change cluster security.sasl_mechanism"
        )
    if isinstance(error, LoginRequiredError):
        return (
            f"its listener requires a login, and {protocol} has none; expected the protocol "
            "SASL_PLAINTEXT or SASL_SSL; change cluster security.protocol, or the port"
        )
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return f"its listener takes no login, and {protocol} has one; {_CHECK_PROTOCOL}"
    if type(error).__module__.partition(".")[0] == "gssapi":
        return _explain_kerberos(error, options)
    if isinstance(error, RuntimeError) and mechanism == "GSSAPI":
        return NO_GSSAPI.format(host=socket.gethostname())
    return None


def _explain_login(error: Exception, options: Mapping[str, Any]) -> str:
    mechanism = options.get("sasl_mechanism")
    provider = options.get("sasl_oauth_token_provider")
    remedy = _LOGIN_REMEDY.get(mechanism, _LOGIN_REMEDY[None])
    return (
        f"it refuses the login by {mechanism} ({_brief(error)}); expected a user that it knows; "
        f"{getattr(provider, 'remedy', remedy)}"
    )


def _explain_kerberos(error: BaseException, options: Mapping[str, Any]) -> str:
    """Explain an error of MIT's Kerberos library by its minor code, which names the cause."""
    said = re.sub(r".*Minor \(\d+\): ", "", _text_of(error))
    service = options.get("sasl_kerberos_service_name")
    return (
        f"Kerberos gives no ticket for its service {service} ({said[:200]}); expected a ticket of "
        "this host's user (kinit, and KRB5CCNAME), or a keytab in KRB5_CLIENT_KTNAME, on the "
        f"driver and on every executor, and a principal {service}/HOST for each broker's "
        "advertised host; provide them, or correct cluster security.kerberos_service_name"
    )


def _brief(error: BaseException) -> str:
    text = re.sub(r"^(\[Error -?\d+\] )?(\w+Error: )+", "", _text_of(error))
    return text[:200] or type(error).__name__


def _text_of(error: BaseException) -> str:
    return " ".join(str(error).split())
