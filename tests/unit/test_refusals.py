"""Each way in which a broker refuses has a sentence of its own."""

from __future__ import annotations

import ssl

import pytest
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


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (certificate_error(10, "certificate has expired"), ["expired"]),
        (certificate_error(9, "certificate is not yet valid"), ["clocks"]),
        (certificate_error(62, "Hostname mismatch"), ["check_hostname"]),
        (certificate_error(19, "self-signed"), ["security.cafile"]),
        (certificate_error(7, "signature failure"), ["(signature failure)"]),
        (tls_error("WRONG_VERSION_NUMBER"), ["SASL_SSL", "security.protocol"]),
        (tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), ["certificate"]),
        (tls_error("NO_SHARED_CIPHER"), ["(no shared cipher)"]),
        (
            kafka_errors.SaslAuthenticationFailedError("bad password"),
            ["PLAIN (bad password)", "security.password_from"],
        ),
        (kafka_errors.UnsupportedSaslMechanismError("x"), ["PLAIN", "sasl_mechanism"]),
        (kafka_errors.IllegalSaslStateError(), ["SASL_SSL", "security.protocol"]),
        (LoginRequiredError(), ["SASL_PLAINTEXT", "security.protocol"]),
        (kafka_errors.KafkaTimeoutError("x"), ["SASL_SSL", "security.protocol"]),
        (kafka_errors.KafkaConnectionError("socket disconnected"), ["(socket disconnected)"]),
        (ConnectionResetError("reset"), ["(reset)"]),
    ],
)
def test_each_error_names_its_remedy_and_no_secret(
    error: Exception, parts: list[str], snapshot: SnapshotAssertion
) -> None:
    message = explain_refusal(error, OPTIONS)
    assert message == snapshot
    assert all(part in message for part in parts), message
    assert "hunter2" not in message and "alice" not in message


def test_an_error_inside_an_error_of_kafka_python_is_explained() -> None:
    inner = tls_error("SSLV3_ALERT_BAD_CERTIFICATE")
    given = {**OPTIONS, "ssl_certfile": "/client.pem"}
    message = explain_refusal(kafka_errors.KafkaConnectionError(inner), given)
    assert "it refuses the client's certificate (sslv3 alert bad certificate)" in message
