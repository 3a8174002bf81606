"""The results in the folders of a sweep's runs."""

from __future__ import annotations

from pathlib import Path

from metrics.reporting.summary import RunSummary, load_summary
from metrics.reporting.sweep.results import CONCLUDED


def finished(folder: Path) -> RunSummary | None:
    """The summary of a finished run; None for an unfinished one."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary = load_summary(path)
    return summary if summary.status in CONCLUDED else None
