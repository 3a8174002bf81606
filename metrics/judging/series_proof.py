"""The check that an exporter's series belong to the right brokers and readings.

A rule set that a run derives from an exporter's page assigns series to readings. This assignment
follows from the names and the values of the series, so it can be wrong. The warm-up sends a load of
known size, which shows whether this assignment of series is correct. Each broker's counts of
messages and bytes are polled before and after the load. The growth of each count must agree with
the records that the load sent to the partitions that the broker leads.

The load must reduce the idle time of the request handlers. The size of this reduction depends on
the machine. A load of a few requests reduces the idle time by less than the error of the idle time.
A reduction that is larger than the error shows that the series of the idle time is correct. The
reduction is required only of a load whose effect would exceed the error even on a very fast
machine. The idle time may rise if other clients stop when the load begins. Even if the idle time
rises, the handlers can be idle only in the part of the time in which the load does not keep them
busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from metrics.common.grouping import grouped
from metrics.sources.beans import HANDLER_IDLE_NS, UPTIME_MS
from metrics.sources.one_minute_rates import TICK_S
from metrics.sources.sample import BrokerSample
from metrics.sources.source import named_brokers
from metrics.trial.client import Counts
from metrics.trial.others import BYTES_LEAST_PER_S, MESSAGES_LEAST_PER_S
from metrics.windows.broker import HANDLER_POLL_S, Span, over


@dataclass(frozen=True)
class Polls:
    """Two polls of one broker outside of a trial, and the differences of their readings."""

    first: BrokerSample
    last: BrokerSample

    @property
    def seconds(self) -> float:
        """Time between the polls [s]."""
        return self.last.at_s - self.first.at_s

    @property
    def is_whole(self) -> bool:
        """Whether both polls succeeded in order, and the broker did not restart between them."""
        errors = self.first.error or self.last.error
        up_ms = self.first.values.get(UPTIME_MS, 0.0), self.last.values.get(UPTIME_MS, 0.0)
        return errors is None and self.seconds > 0 and up_ms[0] <= up_ms[1]

    @cached_property
    def span(self) -> Span:
        """The differences of the readings between the polls."""
        return Span((self.first, self.last))


def polls_of(earlier: Iterable[BrokerSample], later: Iterable[BrokerSample]) -> dict[int, Polls]:
    """Broker id → its two polls, for the brokers that occur in both arguments."""
    before = {each.broker_id: each for each in earlier}
    return {
        each.broker_id: Polls(before[each.broker_id], each)
        for each in later
        if each.broker_id in before
    }


REQUEST_LEAST_S = 20e-6
"""Shortest time for which a produce request keeps a handler busy on any machine [s]."""
LOCAL_SHARE = 0.5
"""Share of the local time of produce requests that certainly keeps handlers busy [ratio]."""
_LOCAL_ROUNDING_MS = 0.5
"""Largest error of a local time, because Kafka rounds each local time to milliseconds [ms]."""
OTHERS_SHARE_MAX = 0.1
"""Other clients may send at most this share of a broker's produce requests; otherwise the local
time of the requests does not count as the load's time [ratio]."""
IDLE_SPARE = 0.02
"""Error of an idle time in addition to the error at the edges of its window [ratio]."""


@dataclass(frozen=True)
class HandlerPool:
    """The request handlers of one broker.

    Attributes:
        number: number of handlers, or None if it is unknown.
        idle_error: error of the idle time [ratio] that arises if a controller shares the broker's
            metric.
    """

    number: int | None = None
    idle_error: float = 0.0


TOLERANCE = 0.05
"""Largest accepted difference between a broker's count and the records sent to it [ratio]."""
MESSAGES_LEAST, BYTES_LEAST = 2_000.0, 1_000_000.0
"""Smallest load of a broker with which the broker's series can be checked: a number of messages
[messages], and the total size of these messages [B]."""
OTHERS_MAX = 0.5
"""A series can be checked only if the expected load of other clients, divided by the load of the
warm-up, is at most this value [ratio]."""
_OTHERS_GROWTH = 2.0
"""Highest accepted ratio of other clients' writes during the load to their writes before the
load."""

CLAUSES_MAX = 5
"""Highest number of problems that a message lists. If there are more problems than this number, the
message states how many problems are left out."""
_Clause = tuple[int, str]
"""A broker id, and a text for a problem of this broker."""

_LEAST = {"messages_in": MESSAGES_LEAST, "bytes_in": BYTES_LEAST}
_OTHERS_PER_S = {"messages_in": MESSAGES_LEAST_PER_S, "bytes_in": BYTES_LEAST_PER_S}


@dataclass(frozen=True)
class Sent:
    """The messages that a load sent to the partitions of one leader.

    Attributes:
        least: number of acknowledged messages.
        most: highest possible number of messages in the broker's logs, including repeated and
            failed messages.
        message_bytes: size of a message in the record batches [B], or None if it is unknown.
        requests: minimum number of produce requests, or 0 if the client library does not report
            them.
        is_transactional: whether the load has transactions.
    """

    least: float
    most: float
    message_bytes: float | None
    requests: int = 0
    is_transactional: bool = False

    def span(self, reading: str) -> tuple[float, float] | None:
        """The smallest and the largest expected growth of a reading, or None if the expected growth
        is unknown.
        """
        if reading == "messages_in":
            return self.least, self.most
        if self.message_bytes is None:
            return None
        return self.least * self.message_bytes, self.most * self.message_bytes


@dataclass(frozen=True)
class Proof:
    """The result of the comparison of all brokers' readings with a load.

    Attributes:
        disagreements: one clause for each reading that disagrees with the load.
        doubts: one clause for each reason why the load cannot show whether a reading is correct.
        idle_unproven: broker id → an idle time [ratio]. If the idle time under a later load is
            lower than this value, the reading of the idle time is correct. The map contains the
            brokers whose idle time fell by at most the error of the idle time.
    """

    disagreements: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    idle_unproven: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every reading of every broker agrees with the load."""
        return not self.disagreements and not self.doubts and not self.idle_unproven


def sent_by_broker(
    counts: Counts, leaders: Sequence[int], others_messages: float = 0.0
) -> dict[int, Sent]:
    """Broker id → the messages that a load sent to it.

    Args:
        counts: what the producers counted during the whole load.
        leaders: broker id of the leader of each partition. The partitions of all topics are
            numbered from 0 in one sequence.
        others_messages: number of messages of this suite in other topics, such as commits. It is
            not known which brokers received these messages.
    """
    acked, more = dict.fromkeys(leaders, 0.0), dict.fromkeys(leaders, 0.0)
    additions = (
        counts.failed_by_partition,
        counts.retried_by_partition,
        counts.control_records_by_partition,
    )
    for partition, broker in enumerate(leaders):
        own = counts.acked_by_partition.get(partition, 0)
        acked[broker] += own
        unacked = counts.sent_by_partition.get(partition, 0) - own
        more[broker] += max(0, unacked) + sum(each.get(partition, 0) for each in additions)
    size = over(counts.log_bytes, counts.acked_total)
    unplaced = others_messages + counts.transaction_log_records
    return {
        broker: Sent(
            acked[broker],
            acked[broker] + more[broker] + unplaced,
            size,
            counts.by_broker[broker].requests if broker in counts.by_broker else 0,
            counts.transaction_log_records > 0,
        )
        for broker in acked
    }


def prove(
    at_rest: Mapping[int, Polls],
    loaded: Mapping[int, Polls],
    sent: Mapping[int, Sent],
    pools: Mapping[int, HandlerPool] | None = None,
) -> Proof:
    """Compare the readings of the brokers with a load.

    Args:
        at_rest: broker id → polls without the load.
        loaded: broker id → polls immediately before and immediately after the load.
        sent: broker id → messages that the load sent to it.
        pools: broker id → its request handlers, if they are known.
    """
    disagreements: list[_Clause] = []
    doubts: list[_Clause] = []
    idle_unproven: dict[int, float] = {}
    for broker in sorted(sent):
        rest, load = at_rest.get(broker), loaded.get(broker)
        if rest is None or load is None or not rest.is_whole or not load.is_whole:
            doubts.append((broker, "a poll failed, or the broker restarted"))
            continue
        one = BrokerProof(rest, load, sent[broker], (pools or {}).get(broker, HandlerPool()))
        wrong, unclear = one.compared()
        below = one.proven_below
        if too_idle := one.too_idle():
            wrong.append(too_idle)
        elif below is None:
            unclear.append(f"{HANDLER_IDLE_NS} is not shown")
        elif not one.is_shown:
            idle_unproven[broker] = below
        disagreements += [(broker, text) for text in wrong]
        doubts += [(broker, text) for text in unclear]
    return Proof(_grouped(disagreements), _grouped(doubts), idle_unproven)


def _grouped(clauses: Sequence[_Clause]) -> tuple[str, ...]:
    """One text for each different problem: the brokers that have the problem, and the problem. If
    there are more than `CLAUSES_MAX` problems, the last text states how many problems are left out.
    """
    brokers = grouped((text, broker) for broker, text in clauses)
    found = [f"{named_brokers(ids)}: {text}" for text, ids in brokers.items()]
    left = len(found) - CLAUSES_MAX
    return tuple(found if left <= 0 else [*found[:CLAUSES_MAX], f"and {left} more like these"])


@dataclass(frozen=True)
class BrokerProof:
    """The comparison of one broker's readings with a load.

    Attributes:
        rest: polls without the load.
        load: polls immediately before and immediately after the load.
        sent: messages that the load sent to the broker.
        pool: the broker's request handlers.
    """

    rest: Polls
    load: Polls
    sent: Sent
    pool: HandlerPool = HandlerPool()

    def compared(self) -> tuple[list[str], list[str]]:
        """Compare the load with the growth of two counts: the messages and the bytes that the
        broker received.

        Returns:
            Two lists: a clause for each reading that disagrees with the load, and a clause for each
            reading that the load cannot show to be correct.
        """
        below: list[str] = []
        above: list[str] = []
        doubts: list[str] = []
        known = 0
        for reading, least_proven in _LEAST.items():
            span, others = self.sent.span(reading), self._others(reading)
            grown = self.load.span.delta(reading)
            if span is None:
                doubts.append(f"the client library does not report the expected {reading}")
            elif others is None or grown is None:
                doubts.append(f"{reading} is not shown")
            elif span[0] < least_proven:
                doubts.append(f"the load was too small to prove {reading}")
            elif others > OTHERS_MAX * span[0]:
                doubts.append(f"{reading} is not checked, because other clients write too much")
            else:
                known += 1
                beside = others * _OTHERS_GROWTH + _OTHERS_PER_S[reading] * self.load.seconds
                least, most = span[0] * (1 - TOLERANCE), span[1] * (1 + TOLERANCE) + beside
                text = f"{reading} grew by {grown:,.0f}; expected {least:,.0f} to {most:,.0f}"
                if grown < least:
                    below.append(text)
                elif grown > most:
                    above.append(text)
        if above and len(above) == known:  # another producer explains it
            doubts.append(
                f"{'; '.join(above)}: other clients wrote more under the load than before the run"
            )
            above = []
        return [*below, *above], doubts

    def _others(self, reading: str) -> float | None:
        """The growth of a reading that other clients are expected to cause during the load. The
        rate of the other clients is assumed to stay the same as before the load.
        """
        grown = self.rest.span.delta(reading)
        if grown is None:
            return None
        return max(0.0, grown) * self.load.seconds / self.rest.seconds

    def too_idle(self) -> str:
        """A clause if the handlers are more idle than the load allows, or an empty text
        otherwise.
        """
        idle, busy = self.load.span.handler_idle, self.busy_least
        # The updates of one-minute rates may begin up to one interval before the load.
        ticked_s = self.load.span.ticked_s(HANDLER_IDLE_NS)
        beside = TICK_S / ticked_s if ticked_s else 0.0
        if idle is None or idle <= 1.0 - busy + self._idle_error + beside:
            return ""
        text = f"{HANDLER_IDLE_NS} shows the request handlers idle {idle:.2f} under the load"
        if not busy:
            return f"{text}, expected 1 or less"
        return (
            f"{text}, expected {1.0 - busy:.2f} or less, because the load's produce requests keep "
            f"the {self.pool.number} handlers busy for {busy:.2f} of the time or longer"
        )

    @property
    def proven_below(self) -> float | None:
        """The idle time before the load [ratio], minus two errors: the error of this idle time, and
        the error of the idle time under the load. None if the polls before the load do not show the
        idle time.

        If the idle time under the load is lower than this result, the load reduces the handlers'
        idle time.
        """
        idle = self._unloaded.span.handler_idle
        return None if idle is None else idle - _edge_error(self._unloaded) - self._idle_error

    @property
    def is_shown(self) -> bool:
        """True if the load reduced the handlers' idle time by more than the error of this time."""
        idle, below = self.load.span.handler_idle, self.proven_below
        return idle is not None and below is not None and idle < below

    @property
    def busy_least(self) -> float:
        """The load keeps the handlers busy for at least this share of the time [ratio]."""
        if not self.pool.number:
            return 0.0
        busy_s = max(self.sent.requests * REQUEST_LEAST_S, self._local_s() * LOCAL_SHARE)
        return min(1.0, busy_s / self.pool.number / self.load.seconds)

    def _local_s(self) -> float:
        """Time that the handlers spent on the load's produce requests [s], or 0 if the time is
        unknown.
        """
        name, rest = "produce_local_ms", self._unloaded
        count, before = (polls.span.delta(f"{name}_count") for polls in (self.load, rest))
        times_ms = self.load.span.sum_delta(name)
        if self.sent.is_transactional or count is None or before is None or times_ms is None:
            return 0.0
        of_others = before / rest.seconds * self.load.seconds
        if of_others > OTHERS_SHARE_MAX * count:
            return 0.0
        return max(0.0, times_ms - _LOCAL_ROUNDING_MS * count) / 1000.0

    @property
    def _unloaded(self) -> Polls:
        """The first and the last poll before the load."""
        return Polls(self.rest.first, self.load.first)

    @property
    def _idle_error(self) -> float:
        """Error of the idle time under the load [ratio]."""
        return IDLE_SPARE + self.pool.idle_error + _edge_error(self.load)


def _edge_error(polls: Polls) -> float:
    """The error of an idle time [ratio] that the two ends of the window cause.

    A handler reports a wait only when the wait ends. If a wait begins before the start of a window
    and ends in the window, the whole wait counts as idle time of the window.
    """
    return HANDLER_POLL_S / (polls.span.ticked_s(HANDLER_IDLE_NS) or polls.seconds)
