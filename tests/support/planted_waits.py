"""Waits that a test plants in the network threads of running brokers.

A network thread looks up the principal of each request. The planted class waits in this call for
as many milliseconds as the broker's file has bytes, and does not wait without a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.setup.jars import java_jar, kafka_jars

NAME = "PlantedPrincipals"
FOLDER_PROPERTY = "planted.folder"
SOURCE = Path(__file__).with_name("PlantedPrincipals.java").read_text(encoding="utf-8")


def jars(kafka_version: str) -> list[Path]:
    """The class path of brokers with the planted class."""
    own = kafka_jars(kafka_version)
    return [*own, java_jar(NAME, SOURCE, own)]


def properties(folder: Path) -> dict[str, str]:
    """The broker properties that activate the planted class."""
    return {"principal.builder.class": NAME, FOLDER_PROPERTY: str(folder)}


@contextmanager
def waits(folder: Path, brokers: Iterable[int], each_ms: int) -> Iterator[None]:
    """Make the network threads of these brokers wait in each request [ms]."""
    files = [folder / str(broker_id) for broker_id in brokers]
    for file in files:
        file.write_bytes(bytes(each_ms))
    try:
        yield
    finally:
        for file in files:
            file.unlink()
