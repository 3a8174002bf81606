"""Sweeps of experiments that a test defines, on its testbed."""

from __future__ import annotations

from pathlib import Path

from jobs.campaigns.sweep.cases import Sweep, load_sweep
from jobs.campaigns.sweep.execution import SweepExecution, SweepOrder
from jobs.console.events import Reporter
from jobs.testbed.client_access import cluster_file
from jobs.testbed.handle import Testbed


def sweep_of(folder: Path, testbed: Testbed, text: str) -> Sweep:
    """The sweep of an experiment with this YAML text."""
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return load_sweep(str(file), (), str(cluster_file(testbed.folder)))


def sweeping(sweep: Sweep, folder: Path, reporter: Reporter) -> SweepExecution:
    """The execution of the sweep `s1`, with its tables in the same folder."""
    return SweepExecution(SweepOrder(sweep, reporter, "s1", folder / "s1", str(folder / "tables")))
