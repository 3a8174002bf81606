"""The presentation of a comparison: the notes of its plan, its tables and its sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobs.campaigns.compare.answer import CaseAnswer, ComparisonAnswer, SideFacts
from jobs.campaigns.compare.pairs import Effort
from jobs.campaigns.compare.sides import SideSetup, needed_bytes, share_brokers
from jobs.console.events import Table
from metrics.comparing.cause import resource_use
from metrics.comparing.effects import PAIRS_MIN, Conclusion
from metrics.comparing.governors import short_name
from metrics.comparing.pairs import Compared, Side
from metrics.tables.environment import Difference
from metrics.units import UNKNOWN, format_duration, format_volume
from metrics.windows.resource import Resource

_SHOWN = (
    Resource.REQUEST_HANDLERS,
    Resource.NETWORK_THREADS,
    Resource.CPU,
    Resource.DISK,
    Resource.NETWORK,
    Resource.REPLICATION,
)


def plan_notes(
    sides: Mapping[Side, SideSetup], effort: Effort, budget_s: float | None
) -> tuple[str, ...]:
    """The notes of the plan of a comparison."""
    notes = [
        *(f"{side.value} is {setup.label}" for side, setup in sides.items()),
        (
            f"for each size {effort.pairs} pairs with more load than either side takes, and "
            f"{effort.steady_pairs} pairs at a load that both sustain, in turns A B B A; "
            + ("both load the same brokers" if share_brokers(sides) else "both run all the time")
        ),
    ]
    if any(side.memory_bytes for side in sides.values()):
        memory = format_volume(needed_bytes(sides))
        notes.append(f"the brokers and Spark take about {memory} of memory")
    if budget_s is not None:
        notes.append(f"no trial is begun after {format_duration(budget_s)} of trials")
    return tuple(notes)


def answer_tables(answer: ComparisonAnswer) -> list[Table]:
    """The tables: effects, the use of resources, and differences between the sides."""
    if not answer.cases:
        return []
    differences = differences_table(answer.differences)
    found = [effects_table(answer), bound_table(answer)]
    return found if differences is None else [*found, differences]


def sentences(answer: ComparisonAnswer) -> Iterator[str]:
    """The sentences on each size: notes, conclusion, and likely cause with its evidence.

    The last sentence states the releases of both sides.
    """
    for case in answer.cases:
        yield from case.case.notes
        yield sentence(case, answer.min_effect)
        if case.cause is not None:
            yield case.cause.text
            for evidence in case.cause.evidence:
                yield f"evidence: {evidence}"
    if answer.cases:
        yield from _releases(answer.sides)


def _releases(sides: Mapping[Side, SideFacts]) -> Iterator[str]:
    """The release of each side, where one is known."""
    known = {side: facts.release or "of unknown release" for side, facts in sides.items()}
    if len(set(known.values())) > 1:
        yield "; ".join(f"{side.value} is {release}" for side, release in known.items())
    elif any(facts.release for facts in sides.values()):
        yield f"both sides are {known[Side.A]}"


def effects_table(answer: ComparisonAnswer) -> Table:
    """The table of effects, a row for each size and measure."""
    rows = [
        _effect_row(case, each) for case in answer.cases for each in (case.capacity, *case.steady)
    ]
    names = ", ".join(f"{side.value}: {facts.label}" for side, facts in answer.sides.items())
    head = ("size", "measure", "A", "B", "B to A", "95 % interval", "visible from", "pairs")
    return Table(f"{names}", head, tuple(rows))


def _effect_row(case: CaseAnswer, each: Compared) -> tuple[str, ...]:
    effect, unit = each.effect, each.quantity.unit
    means = (_value(each.mean(side)) for side in Side)
    interval = visible = UNKNOWN
    if effect is not None:
        interval = f"{_percent(effect.low - 1)} to {_percent(effect.high - 1)}"
        visible = f"{effect.smallest_visible:.1%}"
    return (
        case.case.title,
        f"{each.quantity.title}{f' [{unit}]' if unit else ''}",
        *means,
        UNKNOWN if effect is None else _percent(effect.change),
        interval,
        visible,
        str(len(each.pairs)),
    )


def _value(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def bound_table(answer: ComparisonAnswer) -> Table:
    """The table of each side's limiting resource, and of the use of resources at both loads."""
    rows = []
    for case in answer.cases:
        for when in ("saturated", "same load"):
            for side, evidence in case.evidence.items():
                trials = evidence.saturated if when == "saturated" else evidence.steady
                used = resource_use(trials)
                bound = evidence.limiting_resource.value if when == "saturated" else ""
                cells = [_value(used.get(resource)) for resource in _SHOWN]
                rows.append((case.case.title, when, side.value, bound, *cells))
    shown = tuple(resource.value for resource in _SHOWN)
    return Table("Use of the brokers' resources", ("size", "when", "side", "bound by", *shown),
                 tuple(rows))  # fmt: skip


def differences_table(differences: Sequence[Difference]) -> Table | None:
    """The table of differences between the sides; None without any."""
    if not differences:
        return None
    rows = tuple((short_name(each.name), each.before, each.after) for each in differences)
    return Table("Differences between the sides", ("name", "A", "B"), rows)


def sentence(case: CaseAnswer, min_effect: float) -> str:
    """The conclusion at one size, with its interval and the smallest visible loss."""
    size, effect = case.case.title, case.capacity.effect
    if effect is None:
        count = len(case.capacity.pairs)
        return f"{size}: no answer; {count} pairs are valid, and {PAIRS_MIN} are needed"
    conclusion = f"{size}: {case.conclusion.value}"
    change = f"B takes {abs(effect.change):.1%} {'less' if effect.change < 0 else 'more'} than A"
    interval = f"95 % interval {_percent(effect.low - 1)} to {_percent(effect.high - 1)}"
    if case.conclusion is Conclusion.NONE_SEEN:
        return (
            f"{conclusion}; measured {_percent(effect.change)}, {interval}; a loss below "
            f"{effect.smallest_visible:.1%} is not visible"
        )
    if case.conclusion is Conclusion.SMALL:
        return f"{conclusion}, {min_effect:.0%}: {change}, {interval}"
    return f"{conclusion}: {change}, {interval}"
