"""Which case of which sweep a run measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Membership:
    """What a run of a sweep belongs to; null for any other run.

    Attributes:
        sweep_id: names the sweep and its folder.
        experiment: what it carries out.
        case: of the experiment, such as `acks=all`.
        repeat: which measurement of the case, from 1.
        settings: full path of each key that varies → its value in this case.
    """

    sweep_id: str | None = None
    experiment: str | None = None
    case: str | None = None
    repeat: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
