"""The case of a sweep that a run measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SweepCase:
    """The case of a sweep that a run measures; all columns are null for other runs.

    Attributes:
        sweep_id: name of the sweep and of its folder.
        experiment: name of the experiment.
        case: name of the case, such as `acks=all`.
        repeat: number of the measurement of this case, from 1.
        settings: full path of each key that varies → its value in this case.
    """

    sweep_id: str | None = None
    experiment: str | None = None
    case: str | None = None
    repeat: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
