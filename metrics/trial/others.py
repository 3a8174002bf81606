"""The load of other clients on the brokers during a trial, compared with their usual level.

The usual level is measured without our load. The measurement takes minutes, and consists of many
readings. Each reading covers about one second. The readings give the mean and the standard
deviation of the usual level. A difference from the usual level is normal if it is at most
`BEYOND_DEVIATIONS` standard deviations. A difference above this normal deviation is a change of the
load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from metrics.sources.beans import PRODUCE_ERRORS, TICKED_S
from metrics.sources.sample import BrokerSample
from metrics.trial.client import ClientWindow, Counts
from metrics.windows.broker import whole

MESSAGES_LEAST_PER_S = 50.0
BYTES_LEAST_PER_S = 100_000.0
"""Other clients are ignored if their messages [1/s] and bytes [B/s] do not exceed these rates,
because the commits of our own consumer groups cause such low rates.
"""

CONTROL_BATCH_BYTES = 78
"""Size of the commit or abort record of a transaction in the log of a partition [B], as Kafka 4.1.2
encodes it.
"""

TRANSACTION_LOG_RECORD_BYTES = 190
"""Size of a record in the brokers' own log of transactions, with its batch [B].

Kafka 4.1.2 encodes TransactionLogKey and TransactionLogValue in one batch for each record. Our
transactional ids have 33 characters, and our topic names have 34 characters. With these names, a
record with one partition has 188 bytes. Each further partition adds 4 bytes. A record without a
partition, at the end of a transaction, has 143 bytes. The mean size of a record is 173 bytes for a
transaction of one partition, and 202 bytes for a transaction of ten partitions that are added one
by one.
"""


SCATTER_LEAST = 0.25
"""An answer states how much a rate varies from second to second only if the standard deviation is
at least this share of the rate [ratio].
"""

BEYOND_DEVIATIONS = 2.0
"""Smallest difference from the usual level that counts as a change of the load of other clients, in
standard deviations.
"""


_WRITES = ("messages_in", "bytes_in")


@dataclass(frozen=True)
class ClientTraffic:
    """Bytes and messages that all clients wrote and read between two polls of the brokers'
    counters.

    Attributes:
        duration_s: time between the polls [s].
        messages: number of written messages, as brokers count them [count].
        log_bytes: size of the written record batches, as brokers count them [B].
        read_bytes: size of the record batches that clients fetched [B]; None if a broker does not
            show it.
        errors: number of errors in the answers to produce requests, counted for each partition;
            None if a broker does not show them.
    """

    duration_s: float
    messages: float
    log_bytes: float
    read_bytes: float | None = None
    errors: float | None = None

    @classmethod
    def between(
        cls,
        earlier: Sequence[BrokerSample],
        later: Sequence[BrokerSample],
        broker_ids: Iterable[int],
    ) -> ClientTraffic | None:
        """The traffic between two polls; None if a broker lacks counters or restarted.

        If the counts are computed from one-minute rates, the result covers the time between two
        updates of the rates: the last update before the first poll, and the last update before the
        second poll. The result is None if a rate was not updated between the polls.
        """
        before = {each.broker_id: each for each in earlier if each.error is None}
        after = {each.broker_id: each for each in later if each.error is None}
        found = []
        for broker_id in broker_ids:
            if broker_id not in before or broker_id not in after:
                return None
            own = cls._of_broker(before[broker_id], after[broker_id])
            if own is None:
                return None
            found.append(own)
        if not found:
            return None
        return cls(
            fmean(each.duration_s for each in found),
            sum(each.messages for each in found),
            sum(each.log_bytes for each in found),
            whole([each.read_bytes for each in found]),
            whole([each.errors for each in found]),
        )

    @classmethod
    def _of_broker(cls, first: BrokerSample, last: BrokerSample) -> ClientTraffic | None:
        messages, written, read = (
            _grown(first, last, name) for name in ("messages_in", "bytes_in", "bytes_out")
        )
        lasted_s = last.at_s - first.at_s
        if messages is None or written is None or lasted_s <= 0:
            return None
        if f"{TICKED_S}:messages_in" in last.values:
            ticks_s = [_grown(first, last, f"{TICKED_S}:{name}") for name in _WRITES]
            if 0 in ticks_s:
                return None
            if ticks_s[0] and ticks_s[1]:
                lasted_s, written = ticks_s[0], written * ticks_s[0] / ticks_s[1]
        return cls(lasted_s, messages, written, read, _grown_errors(first, last))


def _grown_errors(first: BrokerSample, last: BrokerSample) -> float | None:
    """The growth of the produce errors; None if the broker shows no count of answers."""
    shown = [name for name in last.values if name.startswith(f"{PRODUCE_ERRORS}:")]
    grown = (
        last.values[name] - first.values.get(name, 0.0)  # a counter appears with its first error
        for name in shown
        if not name.endswith(":NONE")
    )
    return sum(max(0.0, each) for each in grown) if shown else None


def _grown(first: BrokerSample, last: BrokerSample, name: str) -> float | None:
    """The growth of a counter; None if the counter is missing or fell."""
    if name not in first.values or name not in last.values:
        return None
    grown = last.values[name] - first.values[name]
    return grown if grown >= 0 else None


@dataclass(frozen=True)
class Rate:
    """The mean and the standard deviation of a rate over several readings.

    Attributes:
        mean: mean of the readings, weighted by their length.
        deviation: standard deviation of the readings; 0 for a single reading.
    """

    mean: float = 0.0
    deviation: float = 0.0

    @classmethod
    def of(cls, amounts: Sequence[tuple[float, float]]) -> Rate:
        """The mean rate and its standard deviation, from readings as (seconds, amount)."""
        whole_s = sum(lasted_s for lasted_s, _ in amounts)
        mean = sum(amount for _, amount in amounts) / whole_s
        spread = sum(lasted_s * (amount / lasted_s - mean) ** 2 for lasted_s, amount in amounts)
        return cls(mean, math.sqrt(spread / whole_s))

    @property
    def high(self) -> float:
        """The rate in a usual burst: the mean plus one standard deviation."""
        return self.mean + self.deviation


@dataclass(frozen=True)
class Level:
    """The usual load of other clients, measured while the run itself had no load.

    Attributes:
        messages: messages that other clients wrote [1/s].
        written: bytes of the record batches that other clients wrote [B/s].
        read: bytes that other clients fetched [B/s]; None if brokers do not show it.
        handler_idle: lowest idle fraction of any broker's request handlers under this load [ratio];
            None if it is unknown.
        errors: errors in the answers to produce requests [1/s]; None if brokers do not show them.
        controller_queue_ms: mean time for which an event waits for the controller [ms]; None if no
            controller shows it.
    """

    messages: Rate = Rate()
    written: Rate = Rate()
    read: Rate | None = None
    handler_idle: float | None = None
    errors: Rate | None = None
    controller_queue_ms: float | None = None

    @classmethod
    def of(
        cls,
        looks: Sequence[ClientTraffic],
        handler_idle: float | None = None,
        controller_queue_ms: float | None = None,
    ) -> Level | None:
        """Compute the level from several readings; None if there are no readings."""
        if not looks:
            return None
        read = [(each.duration_s, each.read_bytes) for each in looks if each.read_bytes is not None]
        errors = [(each.duration_s, each.errors) for each in looks if each.errors is not None]
        return cls(
            Rate.of([(each.duration_s, each.messages) for each in looks]),
            Rate.of([(each.duration_s, each.log_bytes) for each in looks]),
            Rate.of(read) if len(read) == len(looks) else None,
            handler_idle,
            Rate.of(errors) if errors else None,  # unknown before the first request
            controller_queue_ms,
        )

    @property
    def is_notable(self) -> bool:
        """True if messages or bytes of other clients exceed the ignored rates, on average or in
        bursts.
        """
        return _are_notable(self.messages, self.written, self.read or Rate())

    @property
    def is_guarded(self) -> bool:
        """True if other clients write enough messages for the guard `others_fall_max`."""
        return self.messages.mean > MESSAGES_LEAST_PER_S


def _are_notable(messages: Rate, *written_or_read: Rate) -> bool:
    return (
        messages.high > MESSAGES_LEAST_PER_S
        or max(each.high for each in written_or_read) > BYTES_LEAST_PER_S
    )


@dataclass(frozen=True)
class Change:
    """The difference between the load of other clients in a trial and their usual level.

    Attributes:
        share: the part of the difference that exceeds the normal deviation, divided by all clients'
            traffic [ratio]; negative if the load fell.
        text: the load and its usual level, such as `wrote 40.0 MB/s, and 20.0 MB/s before the
            trial`.
    """

    share: float
    text: str


@dataclass(frozen=True)
class _Quantity:
    """One quantity of the traffic, with the words that describe the quantity in messages, and with
    the largest change that is ignored.
    """

    verb: str
    unit: str
    scale: float
    digits: int
    negligible: float

    def change(self, now: Rate, level: float, of_all: float) -> Change:
        """The change of a rate: the part of its difference from the usual level that exceeds the
        normal deviation, divided by the rate of all clients.
        """
        off = now.mean - level
        beyond = max(0.0, abs(off) - BEYOND_DEVIATIONS * now.deviation)
        is_negligible = abs(off) <= self.negligible or of_all <= 0
        share = 0.0 if is_negligible else math.copysign(beyond / of_all, off)
        return Change(
            share,
            f"{self.verb} {self.shown(now.mean)} {self.unit}, and {self.shown(level)} "
            f"(± {self.shown(now.deviation)}) before the trial",
        )

    def shown(self, rate: float) -> str:
        """The rate in its unit. A rate below 1 has one digit more than higher rates, so that it is
        not shown as 0.
        """
        value = rate / self.scale
        is_little = self.digits > 0 and 0 < value < 1
        return f"{value:,.{self.digits + is_little}f}"


_MESSAGES = _Quantity("wrote", "messages/s", 1.0, 0, MESSAGES_LEAST_PER_S)
_WRITTEN = _Quantity("wrote", "MB/s", 1e6, 1, BYTES_LEAST_PER_S)
_READ = _Quantity("read", "MB/s", 1e6, 1, BYTES_LEAST_PER_S)


@dataclass(frozen=True)
class OwnTraffic:
    """The traffic of this run's own clients.

    Attributes:
        messages: messages that our producers wrote [count].
        log_bytes: size of our record batches [B]; None if a client library does not report it.
        read_bytes: size of the batches that our consumer groups fetched [B]; None if it is unknown.
    """

    messages: float
    log_bytes: float | None
    read_bytes: float | None = 0.0


@dataclass(frozen=True)
class OtherLoad:
    """The load of other clients, from just before a trial to just after it.

    Attributes:
        messages_per_s: messages that other clients wrote [1/s].
        bytes_per_s: bytes of the record batches that other clients wrote [B/s]; None if a client
            library does not report the size of our own batches.
        at_rest_messages_per_s: messages that other clients wrote before the trial, without our load
            [1/s].
        at_rest_bytes_per_s: bytes that other clients wrote before the trial, without our load
            [B/s].
        all_messages_per_s: messages that all producers wrote, ours included [1/s].
        all_bytes_per_s: bytes that all producers wrote, ours included [B/s].
        read_bytes_per_s: bytes that other clients fetched [B/s]; None if they are unknown.
        at_rest_read_bytes_per_s: bytes that other clients fetched before the trial [B/s].
        all_read_bytes_per_s: bytes that all clients fetched, ours included [B/s].
        at_rest_messages_deviation_per_s: standard deviation of `at_rest_messages_per_s` [1/s].
        at_rest_bytes_deviation_per_s: standard deviation of `at_rest_bytes_per_s` [B/s].
        at_rest_read_bytes_deviation_per_s: standard deviation of `at_rest_read_bytes_per_s` [B/s].
        at_rest_handler_idle: lowest idle fraction of any broker's request handlers [ratio], when
            the load of other clients was last measured without our load; None if the idle fraction
            is unknown.
    """

    messages_per_s: float
    bytes_per_s: float | None
    at_rest_messages_per_s: float
    at_rest_bytes_per_s: float
    all_messages_per_s: float
    all_bytes_per_s: float
    read_bytes_per_s: float | None = None
    at_rest_read_bytes_per_s: float | None = None
    all_read_bytes_per_s: float | None = None
    at_rest_messages_deviation_per_s: float | None = None
    at_rest_bytes_deviation_per_s: float | None = None
    at_rest_read_bytes_deviation_per_s: float | None = None
    at_rest_handler_idle: float | None = None

    @classmethod
    def of(cls, all_of_it: ClientTraffic, own: OwnTraffic, level: Level | None) -> OtherLoad:
        """The load of other clients, that is all traffic minus our own, with its usual level."""
        lasted_s, rest, read = all_of_it.duration_s, level or Level(), all_of_it.read_bytes
        own_read = own.read_bytes

        def of_others(all_: float | None, own_: float | None) -> float | None:
            return None if all_ is None or own_ is None else max(0.0, all_ - own_) / lasted_s

        return cls(
            max(0.0, all_of_it.messages - own.messages) / lasted_s,
            of_others(all_of_it.log_bytes, own.log_bytes),
            rest.messages.mean,
            rest.written.mean,
            all_of_it.messages / lasted_s,
            all_of_it.log_bytes / lasted_s,
            of_others(read, own_read),
            rest.read.mean if rest.read else None,
            None if read is None else read / lasted_s,
            rest.messages.deviation,
            rest.written.deviation,
            rest.read.deviation if rest.read else None,
            rest.handler_idle,
        )

    def changes(self) -> list[Change]:
        """The differences of messages, written bytes and read bytes from their usual level; unknown
        ones are left out.
        """
        level, written = self.at_rest_messages_per_s, self.written
        found = [_MESSAGES.change(self.messages, level, self.all_messages_per_s)]
        if written is not None:
            found.append(_WRITTEN.change(written, self.at_rest_bytes_per_s, self.all_bytes_per_s))
        if self.read is not None and self.at_rest_read_bytes_per_s is not None:
            everything = self.all_bytes_per_s + (self.all_read_bytes_per_s or 0.0)
            found.append(_READ.change(self.read, self.at_rest_read_bytes_per_s, everything))
        return found

    @property
    def rise(self) -> Change:
        """The change with the largest share. A share above 0 is a rise above the usual level."""
        return max(self.changes(), key=lambda each: each.share)

    @property
    def fall(self) -> Change:
        """The change with the smallest share. A share below 0 is a fall below the usual level."""
        return min(self.changes(), key=lambda each: each.share)

    @property
    def is_notable(self) -> bool:
        """True if messages or bytes of other clients exceeded the ignored rates, on average or in
        bursts.
        """
        return _are_notable(self.messages, self.written or Rate(), self.read or Rate())

    @property
    def messages(self) -> Rate:
        """Rate of the messages that other clients wrote in the trial, and the standard deviation of
        this rate before the trial [1/s].
        """
        return Rate(self.messages_per_s, self.at_rest_messages_deviation_per_s or 0.0)

    @property
    def written(self) -> Rate | None:
        """Rate of the bytes that other clients wrote in the trial, and the standard deviation of
        this rate before the trial [B/s].
        """
        return _rate(self.bytes_per_s, self.at_rest_bytes_deviation_per_s)

    @property
    def read(self) -> Rate | None:
        """Rate of the bytes that other clients fetched in the trial, and the standard deviation of
        this rate before the trial [B/s].
        """
        return _rate(self.read_bytes_per_s, self.at_rest_read_bytes_deviation_per_s)


def _rate(mean: float | None, deviation: float | None) -> Rate | None:
    return None if mean is None else Rate(mean, deviation or 0.0)


def _bytes_of_transactions(counts: Counts) -> float:
    ends = CONTROL_BATCH_BYTES * counts.control_records
    return ends + TRANSACTION_LOG_RECORD_BYTES * counts.transaction_log_records


def others_at(
    everything: ClientTraffic, client: ClientWindow, level: Level | None, commits_per_s: float = 0.0
) -> OtherLoad:
    """The load of other clients in one window. Our own load has several such windows.

    The records of our transactions in the brokers' own log are assumed to be spread evenly over the
    load.

    Args:
        everything: traffic of all clients in the window.
        client: the counts of our clients in the window.
        level: the usual load of other clients, without our load.
        commits_per_s: highest number of offsets that our consumer groups commit per second [1/s].
    """
    counts, lasted_s = client.counts, client.duration_s
    share = counts.acked_records / counts.acked_total if counts.acked_total else 0.0
    messages = counts.acked_records + commits_per_s * lasted_s
    messages += share * (counts.transaction_log_records + counts.control_records)
    written = None
    if counts.log_bytes is not None:
        written = share * (counts.log_bytes + _bytes_of_transactions(counts))
    read = float(sum(each.counts.wire_bytes for each in client.groups))
    return OtherLoad.of(everything, OwnTraffic(messages, written, read), level)


def others_in(
    everything: ClientTraffic | None,
    grown: int,
    client: ClientWindow,
    level: Level | None,
    commits_per_s: float = 0.0,
) -> OtherLoad | None:
    """The load of other clients in a trial; None if the traffic of all clients is unknown.

    The batches that our consumer groups read are assumed to have the mean size of our producers'
    batches. In a mix, the mean size is computed for each part, and is used for the groups that read
    the part.

    Args:
        everything: traffic of all clients in the trial.
        grown: growth of our topics' end offsets, including failed and repeated records.
        client: the counts of our clients.
        level: the usual load of other clients, without our load.
        commits_per_s: highest rate of offsets that our own groups commit [1/s].
    """
    if everything is None:
        return None
    counts, acked = client.counts, client.counts.acked_total
    messages = grown + commits_per_s * everything.duration_s + counts.transaction_log_records
    read_records = sum(each.records_total for each in client.groups)
    if counts.log_bytes is None:
        own = OwnTraffic(messages, None, None if read_records else 0.0)
        return OtherLoad.of(everything, own, level)
    each_bytes = counts.log_bytes / acked if acked else 0.0
    written = each_bytes * (grown - counts.control_records) + _bytes_of_transactions(counts)
    read = _read_bytes(client) if acked or not read_records else None
    return OtherLoad.of(everything, OwnTraffic(messages, written, read), level)


def _read_bytes(client: ClientWindow) -> float:
    """The size of all batches that our consumer groups read [B]."""
    total = 0.0
    for group in client.groups:
        counts = client.account_of_group(group.counts.group).counts
        each_bytes = (counts.log_bytes or 0) / (counts.acked_total or 1)
        total += each_bytes * group.records_total
    return total


def traffic_beside(loads: Sequence[OtherLoad], own_bytes_per_s: Sequence[float]) -> str | None:
    """A sentence about the load of other clients during the trials of a limit; None if other
    clients had no notable load.

    Args:
        loads: the load of other clients in each trial.
        own_bytes_per_s: bytes that our producers wrote in each trial [B/s].
    """
    if not any(each.is_notable for each in loads):
        return None
    written = [each.written for each in loads if each.written is not None]
    if len(written) == len(loads):
        parts = [f"{_span(_WRITTEN, written)} written"]
    else:
        parts = [f"{_span(_MESSAGES, [each.messages for each in loads])} written"]
    read = [each.read for each in loads if each.read is not None]
    if max((each.high for each in read), default=0.0) > BYTES_LEAST_PER_S:
        parts.append(f"{_span(_READ, read)} read")
    everything = max(
        own + (each.bytes_per_s or 0.0) for own, each in zip(own_bytes_per_s, loads, strict=True)
    )
    return (
        f"other clients' load during the trials: {' and '.join(parts)}; this load may differ at "
        f"other times; the brokers received up to {everything / 1e6:,.1f} MB/s from all clients"
    )


def _span(quantity: _Quantity, rates: Sequence[Rate]) -> str:
    means = [each.mean for each in rates]
    low, high = quantity.shown(min(means)), quantity.shown(max(means))
    span = f"{low if low == high else f'{low} to {high}'} {quantity.unit}"
    scatter = max(each.deviation for each in rates)
    if scatter <= SCATTER_LEAST * max(means):
        return span
    return f"{span} (± {quantity.shown(scatter)} from second to second)"
