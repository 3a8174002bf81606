"""The judgement of a trial by a goal, with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metrics.windows.resource import Resource
from search.model import Verdict

GENERATOR_LIMITED = "generator_limited"
"""The rule of trials that are INVALID because the generator was the limit."""
OTHERS_LOADED, OTHERS_LESS = "others_loaded", "others_less"
OTHERS_CHANGED = frozenset({OTHERS_LOADED, OTHERS_LESS})
"""The rules of trials that are INVALID because the load of other clients changed."""
ENDED_EARLY = "ended_early"
"""The rule of the reason that states an early end of the window."""


def part_label(part: str) -> str:
    """The beginning of a reason that is about one part of a mix."""
    return f"part {part}: "


@dataclass(frozen=True)
class Reason:
    """One sentence of a verdict, with the rule, the place and the numbers behind it.

    Attributes:
        indicator: the rule's name, for example `request_handler_idle`.
        text: the sentence, with numbers and units.
        broker_id: the broker that the reason is about, or None.
        value, threshold: the numbers compared [in the unit of the rule].
        resource: the resource that the rule points at.
    """

    indicator: str
    text: str
    value: float
    threshold: float
    broker_id: int | None = None
    resource: Resource = Resource.UNKNOWN


@dataclass(frozen=True)
class Judgement:
    """The judgement of a trial by a goal.

    Attributes:
        verdict: `SUSTAINED`, `OVERLOADED` or `INVALID`.
        reasons: reasons of the verdict, the most important first.
        utilization: indicator → its nearness to the threshold, 1 at it; it guides the search
            (`search.model.Observation.indicators`).
        limited_by: the limiting resource of an overload or a closed loop.
        attribution: the evidence for the limiting resource in one sentence.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    utilization: Mapping[str, float] = field(default_factory=dict)
    limited_by: Resource | None = None
    attribution: str = ""

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the reasons, without that of an early end."""
        return frozenset(reason.indicator for reason in self.reasons) - {ENDED_EARLY}

    @property
    def is_by_generator(self) -> bool:
        """True for an INVALID trial for which the generator is the only cause."""
        return self.verdict is Verdict.INVALID and self.rules == {GENERATOR_LIMITED}
