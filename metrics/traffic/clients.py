"""The names of clients, as workloads have them."""

from __future__ import annotations

from typing import Literal

ClientName = Literal["wire", "kafka-python", "librdkafka"]
"""What sends or reads: the engine's own client, or a library (`jobs.engine.clients.registry`)."""
