"""Prometheus JMX exporters in the brokers of the tests, each with a different rule set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.setup.jars import EXPORTER_VERSION, exporter_jar

HOST = "127.0.0.1"

_COUNTS_AND_VALUES = r"""
- pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (.+)=(.+), (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels: {"$4": "$5", "$6": "$7"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels: {"$4": "$5"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+), (.+)=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
  labels: {"$4": "$5", "$6": "$7"}
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
  labels: {"$4": "$5"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+), (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_count
  type: COUNTER
  labels: {"$4": "$5", "$6": "$7"}
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_count
  type: COUNTER
  labels: {"$4": "$5"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)><>Count
  name: kafka_$1_$2_$3_count
  type: COUNTER
"""

# The published rules for the metrics that are read: examples/kafka-kraft-3_0_0.yml of the exporter,
# kafka-metrics.yaml of Strimzi's examples, and the exporter without rules, as on Amazon MSK.
RULES = {
    "kafka-kraft": r"""lowercaseOutputName: true
rules:
- pattern: kafka.server<type=(.+)><>([a-z-]+)-total
  name: kafka_server_$1_$2_total
  type: COUNTER
- pattern: kafka.server<type=(.+)><>([a-z-]+)
  name: kafka_server_$1_$2
  type: GAUGE
"""
    + _COUNTS_AND_VALUES.lstrip(),
    "strimzi": r"""lowercaseOutputName: true
rules:
- pattern: "kafka.server<type=(.+), listener=(.+), networkProcessor=(.+)><>(.+-total):"
  name: kafka_server_$1_$4
  type: COUNTER
  labels: {listener: "$2", networkProcessor: "$3"}
- pattern: "kafka.server<type=(.+), listener=(.+), networkProcessor=(.+)><>(.+):"
  name: kafka_server_$1_$4
  type: GAUGE
  labels: {listener: "$2", networkProcessor: "$3"}
- pattern: "kafka.server<type=raft-metrics><>(.+):"
  name: kafka_server_raftmetrics_$1
  type: GAUGE
"""
    + _COUNTS_AND_VALUES.lstrip(),
    "msk": 'rules:\n- pattern: ".*"\n',
}


@dataclass(frozen=True)
class Exporter:
    """The exporter of one broker.

    Attributes:
        rules: name of its rule set, a key of `RULES`.
        port: its port on `HOST`.
        text: its rules, where they are others.
        version: release of the exporter.
    """

    rules: str
    port: int
    text: str = ""
    version: str = EXPORTER_VERSION

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    def java_option(self, folder: Path) -> str:
        """The JVM option that starts the exporter; its rules are written to a file of `folder`."""
        path = folder / f"{self.rules}.yaml"
        path.write_text(self.text or RULES[self.rules])
        return f"-javaagent:{exporter_jar(self.version)}={HOST}:{self.port}:{path}"
