"""The readiness probe of a broker: its Metadata response names the registered brokers."""

from __future__ import annotations

import socket

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from jobs.testbed.model import HOST

# Every release from 3.9 on supports this version, which needs no flexible encoding.
_VERSION = 7
_CLIENT_ID = "redline-testbed"


def registered_brokers(port: int, timeout_s: float, host: str = HOST) -> frozenset[int]:
    """The ids of the brokers that the broker at this port reports as alive.

    In KRaft these are the registered brokers that the controller has unfenced.

    Raises:
        OSError: the broker accepts no connection, or does not answer in time.
    """
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, version=_VERSION)
    request.with_header(correlation_id=1, client_id=_CLIENT_ID)
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(request.encode(header=True, framed=True))
        with connection.makefile("rb") as stream:
            size = int.from_bytes(_exactly(stream.read(4), 4), "big")
            answer = _exactly(stream.read(size), size)
    response = MetadataResponse.decode(answer, version=_VERSION, header=True)
    return frozenset(broker.node_id for broker in response.brokers)


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ConnectionError(f"the broker closed the connection after {len(data)} of {size} B")
    return data
