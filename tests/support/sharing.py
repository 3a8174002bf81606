"""The tests that must run in one process, as they share brokers or a Spark session."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[2]
COMPUTES = "mark.computes"
_BROKERS = re.compile(
    r"\b(kafka_testbed|kafka_for_all|brokers: LoadedBrokers|bench: Bench|admin: KafkaAdmin)\b"
)
_SPARK = re.compile(r"\b(spark: SparkSession|brokers: LoadedBrokers)\b")


@cache
def shared_by(path: str) -> str | None:
    """What the tests of a file share: `spark`, `brokers`, `brokers and spark`, or None.

    Tests on brokers wait for much of their time, so two processes run them at a time, each with
    brokers of its own; only one of them has a Spark session. The tests of the tables have one
    session, as a second one would compile the same code again.
    """
    if path.startswith("tests/spark/"):
        return "spark"
    text = (ROOT / path).read_text(encoding="utf-8")
    if not _BROKERS.search(text):
        return None
    return "brokers and spark" if _SPARK.search(text) else "brokers"


@cache
def computes(path: str) -> bool:
    """Whether a file has tests that need only CPU."""
    return COMPUTES in (ROOT / path).read_text(encoding="utf-8")


def computing_files() -> list[str]:
    """The files of unit tests with tests that need only CPU.

    The collection of all unit tests takes ten seconds of CPU time in each process.
    """
    files = sorted((ROOT / "tests" / "unit").glob("test_*.py"))
    paths = [path.relative_to(ROOT).as_posix() for path in files]
    return [path for path in paths if computes(path)]


class BySharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A scheduler that runs the tests of a file, and all that share something, in one process."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return shared_by(path) or path
