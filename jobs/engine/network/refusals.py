"""Why a broker and we do not come together, in a sentence that says what to check."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any

from kafka import errors as kafka_errors

from metrics.sources.certificates import CertifiedServer, said, speaks_no_tls

_BROKER = CertifiedServer("broker", "security", "advertised.listeners")

_LOGIN_KEYS = {
    "OAUTHBEARER": "security.token_from, or the oauth keys",
    None: "security.username_from and security.password_from",
}


class LoginWantedError(Exception):
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
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return _login(error, options)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return (
            f"it does not offer the SASL mechanism {options.get('sasl_mechanism')}; expected one "
            "of its sasl.enabled.mechanisms; change cluster security.sasl_mechanism"
        )
    if isinstance(error, LoginWantedError):
        return (
            f"its listener wants a login, and {protocol} has none; expected protocol "
            "SASL_PLAINTEXT or SASL_SSL for it; change cluster security.protocol, or the port"
        )
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return f"its listener wants no login, but {protocol} has one; {_CHECK_PROTOCOL}"
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


def _login(error: Exception, options: Mapping[str, Any]) -> str:
    mechanism = options.get("sasl_mechanism")
    keys = _LOGIN_KEYS.get(mechanism, _LOGIN_KEYS[None])
    return (
        f"it refuses the login by {mechanism} ({_brief(error)}); expected a user that it knows; "
        f"check what cluster {keys} point at"
    )


def _brief(error: BaseException) -> str:
    text = re.sub(r"^(\[Error -?\d+\] )?(\w+Error: )+", "", " ".join(str(error).split()))
    return text[:200] or type(error).__name__
