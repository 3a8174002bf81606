"""Explanations of TLS errors: the reason, and what to check."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from metrics.common.errors import ConfigError

# Codes of OpenSSL's x509_vfy.h, which have no names in Python's ssl.
_NOT_YET_VALID, _EXPIRED = 9, 10
_WRONG_HOST, _WRONG_ADDRESS = 62, 64
_UNTRUSTED = (2, 18, 19, 20, 21)

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


@dataclass(frozen=True)
class CertifiedServer:
    """A kind of server, and the configuration of its TLS.

    Attributes:
        noun: kind of the server, such as `broker`.
        section: section of the cluster's file with its TLS, such as `security`.
        addresses: configuration key of its addresses.
    """

    noun: str
    section: str
    addresses: str

    def explain_server_certificate(self, error: ssl.SSLCertVerificationError) -> str:
        """Why the client refuses the server's certificate, what it expects, and the remedy."""
        code = error.verify_code
        if code in (_WRONG_HOST, _WRONG_ADDRESS):
            return (
                f"its certificate is for another host ({error.verify_message.rstrip('.')}); "
                f"expected one that names the host of its address; correct {self.addresses} or "
                f"the certificate (cluster {self.section}.check_hostname=false trusts any name)"
            )
        if code == _EXPIRED:
            return (
                "its certificate has expired; expected a valid one; renew the "
                f"{self.noun}'s certificate"
            )
        if code == _NOT_YET_VALID:
            return (
                f"its certificate is not valid yet; check the clocks of the {self.noun} and of "
                "this host"
            )
        if code in _UNTRUSTED:
            return (
                f"its certificate is not trusted ({error.verify_message}); expected one that is "
                f"signed by an authority in cluster {self.section}.cafile, or by one that the "
                "system trusts when that key is left out; name the authority's PEM file there"
            )
        return f"its certificate is refused ({error.verify_message}); check it"

    def explain_client_certificate(self, error: ssl.SSLError, *, is_given: bool) -> str | None:
        """The remedy when the server refuses or requires a client's certificate; else None.

        Args:
            is_given: whether the client has a certificate.
        """
        reason = error.reason or ""
        if "CERTIFICATE" not in reason and "UNKNOWN_CA" not in reason:
            return None
        what = "refuses the client's certificate" if is_given else "requires a client's certificate"
        return (
            f"it {what} ({error_text(error)}); expected one that its truststore trusts; check "
            f"cluster {self.section}.certfile and {self.section}.keyfile"
        )


def unusable_file(key: str, path: str, why: str, wanted: str) -> ConfigError:
    """The error for a file of a cluster's section that TLS cannot use; `wanted` is its content."""
    return ConfigError(
        f"cluster {key} is {path}, which cannot be used: {why}; expected a PEM file {wanted}; "
        "correct the path"
    )


def is_plaintext_error(error: ssl.SSLError) -> bool:
    """Whether the server does not speak TLS at all."""
    return error.reason in _NO_TLS


def error_text(error: ssl.SSLError) -> str:
    """OpenSSL's reason in lower case."""
    return (error.reason or str(error)).lower().replace("_", " ")
