"""A short search on real brokers with a planted limit, from the command line to its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.commands import RunningCommand

QUICK = (
    "find-limit",
    "--cluster=calibrated",
    "--workload=calibrated",
    "--set=workload.message_bytes=[1000]",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=4",
    "--set=cluster.warm_up_max_s=5",
    "--set=goal.search.resolution=0.2",
    "--set=goal.search.steady_s=0",
    "--set=goal.search.load_start_max=64",
)
COMBINED = "--set=cluster.testbed.metadata=combined"
"""Brokers that are controllers, too: one process fewer, and a meter of handlers that both share."""
BROKERS = (1, 2)
"""Ids of the brokers of `Run`."""


class Run:
    """A finished run on combined brokers: its output, its exit code and its files."""

    def __init__(self, folder: Path) -> None:
        brokers = f"--set=cluster.testbed.brokers={len(BROKERS)}"
        options = (*QUICK, COMBINED, brokers, "--goal=default,tolerant")
        with RunningCommand(*options, folder=folder) as command:
            self.code = command.wait(deadline_s=280)
            self.text = command.text
        self.tables = folder / "out" / "tables"
        summaries = list((folder / "out").glob("*/summary.json"))
        assert len(summaries) == 1, self.text
        self.folder = summaries[0].parent
        self.summary: dict[str, Any] = json.loads(summaries[0].read_text())
