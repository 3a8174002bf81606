"""A Prometheus exporter on loopback, whose answers and failures the test decides."""

from __future__ import annotations

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
    """An exporter on loopback whose answers the test decides."""

    def __init__(self, text: str = BROKER) -> None:
        self.text = text
        self.status = 200
        self.delay = threading.Event()
        self.delay.set()
        self.knows_filter = True
        self.hangs_up = False
        self.paths: list[str] = []
        self.connections: set[int] = set()
        self.port = 0

    def answer(self, path: str) -> str:
        names = parse_qs(urlsplit(path).query).get("name[]")
        if not names or not self.knows_filter:
            return self.text if self.knows_filter or not names else ""
        kept = (line for line in self.text.split("\n") if line.startswith(tuple(names)))
        return "\n".join(kept) + "\n"


@contextmanager
def serving(exporter: Exporter) -> Iterator[Exporter]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            exporter.delay.wait()
            exporter.paths.append(self.path)
            exporter.connections.add(self.client_address[1])
            body = exporter.answer(self.path).encode()
            self.send_response(exporter.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = exporter.hangs_up

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", exporter.port), Handler)
    server.daemon_threads = True
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
