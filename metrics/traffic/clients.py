"""The names of clients in workloads."""

from __future__ import annotations

from typing import Literal

ClientName = Literal["wire", "kafka-python", "librdkafka"]
"""A client that sends or reads: the engine's own, or a library."""
