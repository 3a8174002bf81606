"""What a search did to its cluster: its loads, its overloads, its requests and others' waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jmxquery
from deltalake import DeltaTable

from jobs.testbed.handle import Testbed

REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*/Count"
HANDLED = (
    "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce/Count",
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent/Count",
)
LOADS = ("Produce", "FetchFollower", "FetchConsumer", "Fetch")
"""Requests that carry records: those of loads, of canaries, of followers and of others."""


def beans_at(endpoint: str, *names: str) -> list[jmxquery.JMXQuery]:
    """The answers of a JMX endpoint to these names of beans, each with its attribute."""
    connection = jmxquery.JMXConnection(f"service:jmx:rmi:///jndi/rmi://{endpoint}/jmxrmi")
    found: list[jmxquery.JMXQuery] = connection.query([jmxquery.JMXQuery(each) for each in names])
    return found


def requests_of(testbed: Testbed) -> dict[int, Counter[str]]:
    """Broker id → kind of request → number of requests since its start."""
    found = {}
    for broker_id, endpoint in testbed.jmx_endpoints.items():
        counts: Counter[str] = Counter()
        for each in beans_at(endpoint, REQUESTS):
            keys = dict(pair.split("=", 1) for pair in each.mBeanName.split(":")[1].split(","))
            counts[keys["request"]] += int(each.value)
        found[broker_id] = counts
    return found


@dataclass(frozen=True)
class Handled:
    """What the request handlers of all brokers did since their start.

    Attributes:
        idle_s: the time for which a handler had nothing to do, a mean of its broker's, added up
            over the brokers [s].
    """

    at_s: float
    requests: float
    idle_s: float

    def since(self, before: Handled, brokers: int, handlers: int) -> tuple[float, float]:
        """The produce requests since an earlier reading, and the handlers' busy time [s]."""
        idle_s = self.idle_s - before.idle_s
        busy_s = handlers * (brokers * (self.at_s - before.at_s) - idle_s)
        return self.requests - before.requests, busy_s


def handled_of(testbed: Testbed) -> Handled:
    """What the handlers did until now, by the brokers' own meters."""
    requests = idle_s = 0.0
    for endpoint in testbed.jmx_endpoints.values():
        values = {each.mBeanName: float(each.value) for each in beans_at(endpoint, *HANDLED)}
        requests += sum(value for name, value in values.items() if "Produce" in name)
        idle_s += sum(value for name, value in values.items() if "Idle" in name) / 1e9
    return Handled(time.time(), requests, idle_s)


def control_requests(
    before: Mapping[int, Counter[str]], after: Mapping[int, Counter[str]]
) -> Counter[str]:
    """Kind of request → number of requests between two moments, of all brokers, without those that
    carry records; a broker that restarted counts from its start.
    """
    grown: Counter[str] = Counter()
    for broker_id, counts in after.items():
        earlier = before[broker_id]
        has_restarted = counts["Produce"] < earlier["Produce"]
        grown += counts if has_restarted else counts - earlier
    return Counter({kind: count for kind, count in grown.items() if kind not in LOADS})


def impact_of(tables: Path) -> dict[str, Any]:
    """The figures of the only run in these tables."""
    rows = DeltaTable(tables / "trials").to_pyarrow_table().to_pylist()
    if not rows:
        return {}
    rows.sort(key=lambda row: row["trial"])
    loads = [row for row in rows if row["load_s"] is not None]

    def p99_ms(verdict: str) -> float | None:
        windows = [each for row in loads if row["verdict"] == verdict for each in row["canaries"]]
        return max((each["p99_ms"] for each in windows if each["records"]), default=None)

    overloads = [row["load_s"] for row in loads if row["verdict"] == "OVERLOADED"]
    rests = [each["at_rest_p99_ms"] for row in loads for each in row["canaries"]]
    return {
        "trials": len(rows),
        "verdicts": [(row["load"], row["verdict"], row["load_s"]) for row in rows],
        "climb": (rows[0]["warm_up_load"], rows[0]["warm_up_handler_idle"]),
        "peak_mb_per_s": max(row["np"] * row["rate_records_per_s"] * row["bpm"] for row in rows)
        / 1e6,
        "longest_overload_s": max(overloads, default=None),
        "under_load_s": sum(row["load_s"] for row in loads),
        "written_mb": sum(row["acked_total"] * row["bpm"] for row in rows) / 1e6,
        "canary_at_rest_p99_ms": max(rests, default=None),
        "canary_sustained_p99_ms": p99_ms("SUSTAINED"),
        "canary_overloaded_p99_ms": p99_ms("OVERLOADED"),
    }
