"""The resources of a broker."""

from __future__ import annotations

from enum import Enum


class Resource(str, Enum):
    """A resource that can limit a broker, or the connections to it."""

    REQUEST_HANDLERS = "request handlers"
    NETWORK_THREADS = "network threads"
    CPU = "CPU"
    HEAP = "heap"
    MEMORY = "memory"
    DISK = "disk"
    NETWORK = "network"
    REPLICATION = "replication"
    QUOTA = "quota"
    CONNECTION = "connection"
    UNKNOWN = "unknown"
