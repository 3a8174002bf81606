"""Trials from rows of their table, also from rows of older versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metrics.columns import restored
from metrics.trial.judgement import Judgement
from metrics.trial.trial import Trial


def trial_from(row: Mapping[str, Any]) -> Trial:
    """Restore a trial from its row, as `Row.asDict(recursive=True)` returns it.

    Rows of the first versions have one verdict without a goal; the name of its goal is empty.
    """
    if row.get("verdicts"):
        return restored(Trial, row)
    judgements = {"": restored(Judgement, row)}
    return replace(restored(Trial, {**row, "verdicts": {}}), judgements=judgements)
