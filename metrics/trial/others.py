"""The load of other producers on the brokers during a trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metrics.sources.sample import BrokerSample
from metrics.trial.client import ClientWindow
from metrics.trial.counts import Counts

MESSAGES_LEAST_PER_S = 50.0
BYTES_LEAST_PER_S = 100_000.0
"""Rates of messages [1/s] and bytes [B/s] up to which others do not count as a load, such as the
commits of our own consumer groups."""

CONTROL_BATCH_BYTES = 78
"""Size of the end of a transaction in the log of a partition [B], as Kafka 4.1.2 encodes it."""

TRANSACTION_LOG_RECORD_BYTES = 190
"""Size of a record of the brokers' own log of transactions, with its batch [B].

Kafka 4.1.2 encodes TransactionLogKey and -Value in a batch per record. With names as long as ours
(a transactional id of 33 and a topic of 34 characters) a record has 188 bytes with one partition, 4
more for each further partition, and 143 without any, at the end of a transaction. The mean is 173
for a transaction of one partition, and 202 for one of ten that are added one by one.
"""


@dataclass(frozen=True)
class Written:
    """The writes of all producers to the brokers between two polls of their counters.

    Attributes:
        duration_s: time between the polls [s].
        messages: number of messages as brokers count them [count].
        log_bytes: size of the record batches as brokers count them [B].
    """

    duration_s: float
    messages: float
    log_bytes: float

    @classmethod
    def between(
        cls,
        earlier: Sequence[BrokerSample],
        later: Sequence[BrokerSample],
        broker_ids: Iterable[int],
    ) -> Written | None:
        """The writes between two polls; None where a broker lacks counters or restarted between."""
        before = {each.broker_id: each for each in earlier if each.error is None}
        after = {each.broker_id: each for each in later if each.error is None}
        messages = log_bytes = 0.0
        lasted_s: list[float] = []
        for broker_id in broker_ids:
            if broker_id not in before or broker_id not in after:
                return None
            first, last = before[broker_id], after[broker_id]
            grown = [
                last.values[name] - first.values[name]
                for name in ("messages_in", "bytes_in")
                if name in first.values and name in last.values
            ]
            if len(grown) < 2 or min(grown) < 0 or last.at_s <= first.at_s:
                return None
            messages, log_bytes = messages + grown[0], log_bytes + grown[1]
            lasted_s.append(last.at_s - first.at_s)
        if not lasted_s:
            return None
        return cls(sum(lasted_s) / len(lasted_s), messages, log_bytes)


@dataclass(frozen=True)
class OtherLoad:
    """The load of other producers, from just before a trial to just after it.

    Attributes:
        messages_per_s: messages of others [1/s].
        bytes_per_s: bytes of their record batches [B/s]; None where a client library does not
            report the size of ours.
        at_rest_messages_per_s: messages before the run [1/s].
        at_rest_bytes_per_s: bytes before the run [B/s].
        all_messages_per_s: messages of all producers [1/s].
        all_bytes_per_s: bytes of all producers [B/s].
    """

    messages_per_s: float
    bytes_per_s: float | None
    at_rest_messages_per_s: float
    at_rest_bytes_per_s: float
    all_messages_per_s: float
    all_bytes_per_s: float

    @classmethod
    def of(
        cls,
        all_of_it: Written,
        own_messages: float,
        own_bytes: float | None,
        at_rest: Written | None,
    ) -> OtherLoad:
        """The load of others: all writes less our own, with the level at rest."""
        lasted_s = all_of_it.duration_s
        rest = at_rest or Written(1.0, 0.0, 0.0)
        others = max(0.0, all_of_it.messages - own_messages) / lasted_s
        return cls(
            others,
            None if own_bytes is None else max(0.0, all_of_it.log_bytes - own_bytes) / lasted_s,
            rest.messages / rest.duration_s,
            rest.log_bytes / rest.duration_s,
            all_of_it.messages / lasted_s,
            all_of_it.log_bytes / lasted_s,
        )

    @property
    def excess_share(self) -> float:
        """Share of the brokers' input that others wrote beyond their level at rest [ratio]."""
        messages = self.messages_per_s - self.at_rest_messages_per_s
        shares = [0.0]
        if messages > MESSAGES_LEAST_PER_S:
            shares.append(messages / self.all_messages_per_s)
        if self.bytes_per_s is not None:
            more = self.bytes_per_s - self.at_rest_bytes_per_s
            if more > BYTES_LEAST_PER_S:
                shares.append(more / self.all_bytes_per_s)
        return max(shares)

    @property
    def is_notable(self) -> bool:
        """True where others wrote more than a negligible load."""
        return (
            self.messages_per_s > MESSAGES_LEAST_PER_S
            or (self.bytes_per_s or 0.0) > BYTES_LEAST_PER_S
        )

    @property
    def text(self) -> str:
        """The load in words, such as `40.0 MB/s (40,000 messages/s)`."""
        messages = f"{self.messages_per_s:,.0f} messages/s"
        if self.bytes_per_s is None:
            return messages
        return f"{self.bytes_per_s / 1e6:,.1f} MB/s ({messages})"


def _bytes_of_transactions(counts: Counts) -> float:
    ends = CONTROL_BATCH_BYTES * counts.control_records
    return ends + TRANSACTION_LOG_RECORD_BYTES * counts.transaction_log_records


def others_at(
    messages_per_s: float,
    bytes_per_s: float,
    client: ClientWindow,
    at_rest: Written | None,
    commits_per_s: float = 0.0,
) -> OtherLoad:
    """The load of others in a window of a continuous load, by the rates of the brokers.

    The records of our transactions in the brokers' own log are spread evenly over the load.

    Args:
        messages_per_s, bytes_per_s: input of all brokers in the window.
        client: the account of our clients in the window.
        at_rest: writes before the run.
        commits_per_s: highest rate of offsets that our own groups commit [1/s].
    """
    counts, lasted_s = client.counts, client.duration_s
    everything = Written(lasted_s, messages_per_s * lasted_s, bytes_per_s * lasted_s)
    share = counts.acked_records / counts.acked_total if counts.acked_total else 0.0
    own_bytes = None if counts.log_bytes is None else counts.log_bytes * share
    own_messages = counts.acked_records + commits_per_s * lasted_s
    own_messages += share * (counts.transaction_log_records + counts.control_records)
    if own_bytes is not None:
        own_bytes += share * _bytes_of_transactions(counts)
    return OtherLoad.of(everything, own_messages, own_bytes, at_rest)


def others_in(
    written: Written | None,
    grown: int,
    counts: Counts,
    at_rest: Written | None,
    commits_per_s: float = 0.0,
) -> OtherLoad | None:
    """The load of others in a trial; None where the writes are unknown.

    Args:
        written: writes of all producers in the trial.
        grown: growth of our topics' end offsets, failed and repeated records included.
        counts: counts of our producers.
        at_rest: writes before the run.
        commits_per_s: highest rate of offsets that our own groups commit [1/s].
    """
    if written is None:
        return None
    own_bytes = None
    ours = grown - counts.control_records
    if counts.log_bytes is not None:
        own_bytes = counts.log_bytes * ours / counts.acked_total if counts.acked_total else 0.0
    own_messages = grown + commits_per_s * written.duration_s + counts.transaction_log_records
    if own_bytes is not None:
        own_bytes += _bytes_of_transactions(counts)
    return OtherLoad.of(written, own_messages, own_bytes, at_rest)
