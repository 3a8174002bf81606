"""Why a server's certificate is refused, in a sentence that says what to check."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

# Of OpenSSL's x509_vfy.h; Python's ssl has no names for them.
_NOT_YET_VALID, _EXPIRED = 9, 10
_WRONG_HOST, _WRONG_ADDRESS = 62, 64
_UNTRUSTED = (2, 18, 19, 20, 21)

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


@dataclass(frozen=True)
class CertifiedServer:
    """A kind of server, and where its TLS is configured.

    Attributes:
        noun: what it is, such as `broker`.
        section: of the cluster's file, such as `security`.
        addresses: what names its host.
    """

    noun: str
    section: str
    addresses: str

    def explain_server_certificate(self, error: ssl.SSLCertVerificationError) -> str:
        """What is wrong with its certificate, what was expected, and what to do."""
        code = error.verify_code
        if code in (_WRONG_HOST, _WRONG_ADDRESS):
            return (
                f"its certificate is for another host ({error.verify_message.rstrip('.')}); "
                f"expected one that names the host it is reached by; correct {self.addresses} or "
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
                "system knows when that is left out; name the authority's PEM file there"
            )
        return f"its certificate is refused ({error.verify_message}); check it"

    def explain_client_certificate(self, error: ssl.SSLError, *, is_given: bool) -> str | None:
        """Where the server refuses, or misses, our own certificate: what to do; else None.

        Args:
            is_given: whether we have one.
        """
        reason = error.reason or ""
        if "CERTIFICATE" not in reason and "UNKNOWN_CA" not in reason:
            return None
        what = "refuses the client's certificate" if is_given else "wants a client's certificate"
        return (
            f"it {what} ({error_text(error)}); expected one that its truststore trusts; check cluster "
            f"{self.section}.certfile and {self.section}.keyfile"
        )


def is_plaintext_error(error: ssl.SSLError) -> bool:
    """True where what answered is not TLS at all."""
    return error.reason in _NO_TLS


def error_text(error: ssl.SSLError) -> str:
    """OpenSSL's reason in small words."""
    return (error.reason or str(error)).lower().replace("_", " ")
