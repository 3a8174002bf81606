"""The names of clients in workloads."""

from __future__ import annotations

from typing import Annotated

from metrics.common.extensions import CLIENTS, ExtensibleName

NAMES = ("wire", "kafka-python", "librdkafka")
"""The engine's own client, and those of libraries."""
ClientName = Annotated[str, ExtensibleName(NAMES, CLIENTS)]
"""A client that sends or reads."""
