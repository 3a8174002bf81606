"""A Prometheus exporter on loopback, whose answers and failures the test controls."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

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
        """The bytes of the answer to a request for this path."""
        return self.answer(path).encode()

    def answer(self, path: str) -> str:
        names = parse_qs(urlsplit(path).query).get("name[]")
        if not names or not self.knows_filter:
            return self.text if self.knows_filter or not names else ""
        kept = (line for line in self.text.split("\n") if line.startswith(tuple(names)))
        return "\n".join(kept) + "\n"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore clients that end the TLS handshake."""


@contextmanager
def serving(exporter: Exporter, context: ssl.SSLContext | None = None) -> Iterator[Exporter]:
    """Serve an exporter, over HTTPS if there is a context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            exporter.delay.wait()
            exporter.paths.append(self.path)
            exporter.connections.add(self.client_address[1])
            status = exporter.status_for(self.headers.get("Authorization"))
            body = exporter.body(self.path) if status == 200 else b""
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", exporter.wants)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = exporter.hangs_up

        def log_message(self, *_: object) -> None: ...

    server = Server(("127.0.0.1", exporter.port), Handler)
    if context is not None:  # the thread of each connection does its own TLS handshake
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    exporter.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield exporter
    finally:
        exporter.delay.set()
        server.shutdown()
        server.server_close()
        thread.join()
