"""What a goal says of a trial, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metrics.windows.resource import Resource
from search.model import Verdict


@dataclass(frozen=True)
class Reason:
    """One sentence of a verdict, with the rule, the place and the numbers behind it.

    Attributes:
        indicator: the rule's name, for example `request_handler_idle`.
        text: for people, with numbers and units.
        broker_id: the broker it speaks of, or None.
        value, threshold: the numbers compared [as the rule says].
        resource: what the rule points at.
    """

    indicator: str
    text: str
    value: float
    threshold: float
    broker_id: int | None = None
    resource: Resource = Resource.UNKNOWN


@dataclass(frozen=True)
class Judgement:
    """What a goal says of a trial.

    Attributes:
        verdict: `SUSTAINED`, `OVERLOADED` or `INVALID`.
        reasons: of the verdict, the most telling first.
        utilization: how near each indicator is to its threshold, 1 at it; what guides the
            search (`search.model.Observation.indicators`).
        limited_by: the resource that bound the brokers, of an overload or a closed loop.
        attribution: the evidence for it in one sentence.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    utilization: Mapping[str, float] = field(default_factory=dict)
    limited_by: Resource | None = None
    attribution: str = ""
