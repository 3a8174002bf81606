"""Which tests have to run in one process, as they share what is dear to start."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[2]
_BROKERS = re.compile(r"\b(kafka_testbed|kafka_for_all|brokers: LoadedBrokers)\b")


@cache
def shared_by(path: str) -> str | None:
    """What the tests of a file share with others: the brokers of the run, or nothing.

    There is one set of brokers at a time: two of them stall each other at the disk.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    return "brokers" if _BROKERS.search(text) else None


class BySharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests of a file run in one process; all that share something, in the same one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return shared_by(path) or path
