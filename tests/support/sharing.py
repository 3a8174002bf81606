"""Which tests have to run in one process, as they share what is dear to start."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[2]
_BROKERS = re.compile(r"\bkafka_testbed\b")
_SESSION = re.compile(r"\bspark: SparkSession\b|\bbrokers: LoadedBrokers\b")


@cache
def shared_by(path: str) -> str | None:
    """What the tests of a file share with others: brokers, or brokers and a Spark session, which
    would be too much for one process to go through, or a session, or nothing.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    has_session = _SESSION.search(text) is not None
    if _BROKERS.search(text):
        return "brokers and spark" if has_session else "brokers"
    return "spark" if path.startswith("tests/spark/") and has_session else None


class BySharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests of a file run in one process; all that share something, in the same one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return shared_by(path) or path
