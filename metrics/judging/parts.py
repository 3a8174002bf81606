"""The judgement of each part of a mix by the rules for clients.

A part that falls behind may be too small to show in the sums of the mix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from metrics.trial.evidence import Evidence
from metrics.trial.judgement import Reason, part_label


def reasons_of_parts(
    reasons_of: Callable[[Evidence], list[Reason]], evidence: Evidence
) -> list[Reason]:
    """The reasons of each part, which name it; empty without a mix.

    Args:
        reasons_of: returns the reasons by the account of some clients.
    """
    return [
        replace(reason, text=f"{part_label(name)}{reason.text}")
        for name, own in evidence.by_part.items()
        for reason in reasons_of(own)
    ]


def nearest_of_parts(
    value_of: Callable[[Evidence], float | None], evidence: Evidence
) -> float | None:
    """The highest value of all parts, and of the whole; None where no value is known."""
    values = (value_of(each) for each in (evidence, *evidence.by_part.values()))
    return max((each for each in values if each is not None), default=None)
