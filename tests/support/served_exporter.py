"""A Prometheus exporter on loopback, whose answers and failures the test controls."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from tests.support.served_http import Answer, Asked, served

HANDLERS = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_count"
LEADERS = "kafka_server_replicamanager_leadercount"
BROKER = f"""# HELP {HANDLERS} idle
# TYPE {HANDLERS} counter
{HANDLERS} 5.0E8
{LEADERS} 10
process_start_time_seconds 900.0
process_cpu_seconds_total 1.5
jvm_gc_collection_seconds_sum{{gc="G1 Old Generation",}} 0.25
jvm_memory_used_bytes{{area="heap"}} 7
jvm_memory_bytes_used{{area="heap",}} 8
jvm_runtime_info{{runtime="OpenJDK",vendor="Debian",version="17.0.15"}} 1
kafka_server_brokertopicmetrics_messagesin_total 12
kafka_server_brokertopicmetrics_messagesin_total{{topic="other"}} 3
kafka_server_socket_server_metrics_listener_tls_networkprocessor_2_io_wait_time_ns_total 4
unrelated_metric{{a="b"}} NaN
"""


class Exporter:
    """The state and the answers of an exporter, which the test controls."""

    def __init__(self, text: str = BROKER) -> None:
        self.text = text
        self.status = 200
        self.delay = threading.Event()
        self.delay.set()
        self.knows_filter = True
        self.hangs_up = False
        self.login: str | None = None
        self.wants = 'Basic realm="exporter"'
        self.paths: list[str] = []
        self.connections: set[int] = set()
        self.port = 0

    def status_for(self, login: str | None) -> int:
        """The HTTP status of the answer to a request with this Authorization header."""
        return 401 if self.login is not None and login != self.login else self.status

    def body(self, path: str) -> bytes:
        return self.answer(path).encode()

    def answer(self, path: str) -> str:
        names = parse_qs(urlsplit(path).query).get("name[]")
        if not names or not self.knows_filter:
            return self.text if self.knows_filter or not names else ""
        kept = (line for line in self.text.split("\n") if line.startswith(tuple(names)))
        return "\n".join(kept) + "\n"


@contextmanager
def serving(exporter: Exporter, context: ssl.SSLContext | None = None) -> Iterator[Exporter]:
    """Serve an exporter, over HTTPS if there is a context."""

    def answer(asked: Asked) -> Answer:
        exporter.delay.wait()
        exporter.paths.append(asked.path)
        exporter.connections.add(asked.client_port)
        status = exporter.status_for(asked.login)
        body = exporter.body(asked.path) if status == 200 else b""
        return Answer(body, status, exporter.wants, exporter.hangs_up)

    with served(answer, exporter.port, context) as exporter.port:
        try:
            yield exporter
        finally:
            exporter.delay.set()
