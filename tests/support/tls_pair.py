"""A TLS connection with both ends in one process."""

from __future__ import annotations

import socket
import ssl
import threading


def tls_over(ours: socket.socket, theirs: socket.socket) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Both ends of a TLS connection with an anonymous cipher, which needs no certificate."""
    server, client = (anonymous(ssl.PROTOCOL_TLS_SERVER), anonymous(ssl.PROTOCOL_TLS_CLIENT))
    wrapped = server.wrap_socket(theirs, server_side=True, do_handshake_on_connect=False)
    shaking = threading.Thread(target=wrapped.do_handshake)
    shaking.start()
    done = client.wrap_socket(ours)
    shaking.join()
    return done, wrapped


def anonymous(side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH-AES128-SHA:ADH-AES128-GCM-SHA256:@SECLEVEL=0")
    if side == ssl.PROTOCOL_TLS_CLIENT:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
