"""The verdict of a trial: INVALID before OVERLOADED before SUSTAINED, always with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from metrics.judging.attribution import attribute
from metrics.judging.indicators import achieved_share, overload_reasons
from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import invalid_reasons
from metrics.sources.sample import BrokerSample
from metrics.trial.client import TaskRow, merge
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Judgement, Reason
from metrics.windows.broker import BrokerWindow
from metrics.windows.resource import Resource
from search.model import Verdict


@dataclass(frozen=True)
class Evidence:
    """All that one trial left behind, before it is judged.

    Attributes:
        client: the generator's account, see `metrics.trial.client.merge`.
        samples: of all nodes, to be kept.
        brokers, controllers: their windows.
        growth: of the partitions' end offsets over the whole trial, to be compared with the
            acknowledged records; None when it was not read.
        lag_growth_per_s: consumer group → slope of its lag over the window [1/s].
        refusals: why the trial was not made, or was ended, and so is no answer.
    """

    client: ClientWindow
    samples: tuple[BrokerSample, ...] = ()
    brokers: tuple[BrokerWindow, ...] = ()
    controllers: tuple[BrokerWindow, ...] = ()
    growth: Mapping[int, int] | None = None
    lag_growth_per_s: Mapping[str, float] = field(default_factory=dict)
    refusals: tuple[Reason, ...] = ()

    @classmethod
    def missing(cls, np: int, at_s: float, *refusals: Reason) -> Evidence:
        """Of a trial of np producers that left no account, at this time [s since the epoch]."""
        return cls(merge([TaskRow(0, "", np, at_s, at_s)]), refusals=refusals)


def judge_all(evidence: Evidence, goals: Mapping[str, Thresholds]) -> dict[str, Judgement]:
    """One trial in the eyes of each goal, by the goal's name."""
    return {
        name: judge(
            evidence.client,
            evidence.brokers,
            thresholds,
            evidence.controllers,
            evidence.growth,
            evidence.lag_growth_per_s,
            evidence.refusals,
        )
        for name, thresholds in goals.items()
    }


def judge(
    client: ClientWindow,
    brokers: Sequence[BrokerWindow],
    thresholds: Thresholds,
    controllers: Sequence[BrokerWindow] = (),
    growth_by_partition: Mapping[int, int] | None = None,
    lag_growth_per_s: Mapping[str, float] | None = None,
    refusals: Sequence[Reason] = (),
) -> Judgement:
    """Judge one trial.

    Args:
        client: the generator's account, see `metrics.trial.client.merge`.
        brokers: the windows of all brokers of the cluster.
        thresholds: the goal's numbers.
        controllers: the windows of controllers, where their metrics are known.
        growth_by_partition: growth of the end offsets over the whole trial, to be
            compared with the acknowledged records; None when it was not read.
        lag_growth_per_s: consumer group → slope of its lag over the window [1/s].
        refusals: why the trial was not made, or was ended, and so is no answer.
    """
    if refusals and client.offered_records == 0:
        return Judgement(Verdict.INVALID, tuple(refusals))
    invalid = (*refusals, *_invalid(client, brokers, thresholds, controllers, growth_by_partition))
    used = utilization(client, brokers, thresholds)
    if invalid:
        return Judgement(Verdict.INVALID, invalid, used)
    overloaded = overload_reasons(client, brokers, thresholds, lag_growth_per_s)
    if overloaded:
        found = attribute(brokers, thresholds)
        return Judgement(Verdict.OVERLOADED, overloaded, used, found.resource, found.text)
    return Judgement(Verdict.SUSTAINED, sustained_reasons(client, brokers, thresholds), used)


def _invalid(
    client: ClientWindow,
    brokers: Sequence[BrokerWindow],
    thresholds: Thresholds,
    controllers: Sequence[BrokerWindow],
    growth_by_partition: Mapping[int, int] | None,
) -> tuple[Reason, ...]:
    invalid = invalid_reasons(client, brokers, thresholds, controllers, growth_by_partition)
    if not brokers:
        return (*invalid, Reason("metrics_incomplete", "no broker was sampled", 0.0, 1.0))
    return invalid


def utilization(
    client: ClientWindow, brokers: Sequence[BrokerWindow], thresholds: Thresholds
) -> dict[str, float]:
    """How near each indicator is to its threshold: 0 far off, 1 at it, above 1 beyond.

    Only indicators with evidence and a threshold that a ratio can be taken of.
    """
    pairs: dict[str, tuple[float | None, float | None]] = {
        "request_handler_idle": (
            _busiest(window.handler_idle for window in brokers),
            1.0 - thresholds.request_handler_idle_min,
        ),
        "network_idle": (
            _busiest(window.network_idle for window in brokers),
            None if thresholds.network_idle_min is None else 1.0 - thresholds.network_idle_min,
        ),
        "isr": (
            max(_known(window.isr_changed_share for window in brokers), default=None),
            thresholds.isr_changed_share_max,
        ),
        "achieved": (_missing(client), 1.0 - thresholds.achieved_min),
    }
    return {
        name: max(0.0, value) / limit
        for name, (value, limit) in pairs.items()
        if value is not None and limit
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _busiest(idle: Iterable[float | None]) -> float | None:
    return max((1.0 - value for value in _known(idle)), default=None)


def _missing(client: ClientWindow) -> float | None:
    share = achieved_share(client)
    return None if share is None else 1.0 - share


def sustained_reasons(
    client: ClientWindow, brokers: Sequence[BrokerWindow], thresholds: Thresholds
) -> tuple[Reason, ...]:
    """What a sustained trial shows: the worst broker of each indicator, and what was achieved."""
    return (
        *_idle_sentence(brokers, thresholds),
        *_isr_sentence(brokers, thresholds),
        *_achieved_sentence(client, thresholds),
    )


def _idle_sentence(brokers: Sequence[BrokerWindow], thresholds: Thresholds) -> list[Reason]:
    known = [(w.handler_idle, w.broker_id) for w in brokers if w.handler_idle is not None]
    if not known:
        return []
    idle, broker_id = min(known)
    limit = thresholds.request_handler_idle_min
    return [
        Reason(
            "request_handler_idle",
            f"least idle request handlers {idle:.2f} on broker {broker_id}, not below {limit:.2f}",
            idle,
            limit,
            broker_id,
            Resource.REQUEST_HANDLERS,
        )
    ]


def _isr_sentence(brokers: Sequence[BrokerWindow], thresholds: Thresholds) -> list[Reason]:
    known = [(w.isr_changed_share, w.broker_id) for w in brokers if w.isr_changed_share is not None]
    if not known:
        return []
    share, broker_id = max(known)
    limit = thresholds.isr_changed_share_max
    text = (
        f"ISR changes or under-replicated partitions in at most {share:.0%} of a broker's "
        f"samples, not above {limit:.0%}"
    )
    return [Reason("isr", text, share, limit, broker_id, Resource.REPLICATION)]


def _achieved_sentence(client: ClientWindow, thresholds: Thresholds) -> list[Reason]:
    share = achieved_share(client)
    if share is None:
        return []
    text = (
        f"{share:.1%} of the offered records were acknowledged in the window, not below "
        f"{thresholds.achieved_min:.1%} (latency p99 {client.latency_p99_ms:.1f} ms)"
    )
    return [Reason("achieved", text, share, thresholds.achieved_min)]
