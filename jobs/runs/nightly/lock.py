"""One night at a time for each cluster: two would measure each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from jobs.config import Cluster
from jobs.setup.places import cache_dir
from search.errors import ConfigError


def lock_key(cluster: Cluster) -> str:
    """What a cluster is known by before it is asked: its addresses, or that it is made here."""
    if cluster.bootstrap_servers is None:
        return "testbed"  # each is new, and all of them share this machine
    return ",".join(sorted(cluster.bootstrap_servers))


def lock_folder() -> Path:
    """Where the locks of this machine's user are."""
    return cache_dir() / "nights"


@contextmanager
def locked(key: str, told: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the lock of a cluster; the system frees it however the process ends.

    Args:
        key: what the cluster is known by.
        told: who holds it, for those who come second.
        folder: of the lock files.

    Raises:
        ConfigError: another night holds it.
    """
    place = lock_folder() if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    holder = place / f"{name}.txt"
    lock = FileLock(place / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = holder.read_text(encoding="utf-8") if holder.exists() else "another night"
        raise ConfigError(
            f"{who} measures the cluster {key} already; expected one night at a time, as two "
            "would measure each other; wait for its end, or stop it"
        ) from None
    try:
        holder.write_text(told, encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
