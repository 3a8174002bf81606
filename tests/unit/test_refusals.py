"""Each way in which a broker refuses has a sentence of its own."""

from __future__ import annotations

import ssl

from kafka import errors as kafka_errors
from syrupy.assertion import SnapshotAssertion

from jobs.engine.network.refusals import LoginRequiredError, explain_refusal

OPTIONS = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "hunter2",
}


def certificate_error(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


ERRORS = (
    certificate_error(10, "certificate has expired"),
    certificate_error(9, "certificate is not yet valid"),
    certificate_error(62, "Hostname mismatch"),
    certificate_error(19, "self-signed"),
    certificate_error(7, "signature failure"),
    tls_error("WRONG_VERSION_NUMBER"),
    tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
    tls_error("NO_SHARED_CIPHER"),
    kafka_errors.SaslAuthenticationFailedError("bad password"),
    kafka_errors.UnsupportedSaslMechanismError("x"),
    kafka_errors.IllegalSaslStateError(),
    LoginRequiredError(),
    kafka_errors.KafkaTimeoutError("x"),
    kafka_errors.KafkaConnectionError("socket disconnected"),
    ConnectionResetError("reset"),
)


def test_each_error_names_its_remedy_and_no_secret(snapshot: SnapshotAssertion) -> None:
    messages = [explain_refusal(error, OPTIONS) for error in ERRORS]
    inner = tls_error("SSLV3_ALERT_BAD_CERTIFICATE")
    given = {**OPTIONS, "ssl_certfile": "/client.pem"}
    messages.append(explain_refusal(kafka_errors.KafkaConnectionError(inner), given))
    assert messages == snapshot
