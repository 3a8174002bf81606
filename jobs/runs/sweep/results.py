"""What the runs of a sweep's cases left in their folders."""

from __future__ import annotations

from pathlib import Path

from metrics.reporting.summary import RunSummary, load_summary
from metrics.reporting.sweep.results import CONCLUDED


def finished(folder: Path) -> RunSummary | None:
    """What the run of a turn concluded; None where it did not come to its end."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary = load_summary(path)
    return summary if summary.status in CONCLUDED else None
