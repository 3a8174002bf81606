"""Trials as their table has them, of this version and of older ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metrics.columns import restored
from metrics.trial.judgement import Judgement
from metrics.trial.trial import Trial


def trial_from(row: Mapping[str, Any]) -> Trial:
    """A trial from its row as `Row.asDict(recursive=True)` gives it.

    The first versions kept one verdict and no goal with it; its goal has no name then.
    """
    if row.get("verdicts"):
        return restored(Trial, row)
    judgements = {"": restored(Judgement, row)}
    return replace(restored(Trial, {**row, "verdicts": {}}), judgements=judgements)
