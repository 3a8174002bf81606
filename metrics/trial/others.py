"""What others wrote to the brokers while a trial loaded them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metrics.sources.sample import BrokerSample
from metrics.trial.client import ClientWindow
from metrics.trial.counts import Counts

MESSAGES_LEAST_PER_S = 50.0
BYTES_LEAST_PER_S = 100_000.0
"""Less than this is no load: the commits of our own consumer groups, for example [1/s], [B/s]."""

CONTROL_BATCH_BYTES = 78
"""Size of the end of a transaction in the log of a partition [B], as Kafka 4.1.2 encodes it."""

TRANSACTION_LOG_RECORD_BYTES = 190
"""Size of a record of the brokers' own log of transactions, with its batch [B].

As Kafka 4.1.2 encodes it (TransactionLogKey and -Value, each record in a batch of its own) for
names as long as ours, a transactional id of 33 and a topic of 34 characters: 188 with one
partition, 4 more for each further one, 143 without any, as of a transaction that is complete. So
173 in the mean for a transaction of one partition, and 202 for one of ten, added one by one.
"""


@dataclass(frozen=True)
class Written:
    """What producers of all kinds wrote to the brokers between two polls of their counters.

    Attributes:
        duration_s: between the polls [s].
        messages: as brokers count them [count].
        log_bytes: of record batches, as brokers count them [B].
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
        """None where a broker does not tell, or was started anew in between."""
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
    """The load of others, from just before a trial to just after it.

    Attributes:
        messages_per_s: that were not ours [1/s].
        bytes_per_s: of their record batches [B/s]; None where a client library does not tell
            the size of ours.
        at_rest_messages_per_s: before the run [1/s].
        at_rest_bytes_per_s: before the run [B/s].
        all_messages_per_s: of everybody [1/s].
        all_bytes_per_s: of everybody [B/s].
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
        """What is left of everything without ours, beside the level at rest."""
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
        """Share of what the brokers took that others wrote beyond their level at rest [ratio]."""
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
    def is_worth_telling(self) -> bool:
        """True where the brokers were not ours alone."""
        return (
            self.messages_per_s > MESSAGES_LEAST_PER_S
            or (self.bytes_per_s or 0.0) > BYTES_LEAST_PER_S
        )

    @property
    def text(self) -> str:
        """`40.0 MB/s (40,000 messages/s)`."""
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
    """What was not ours in a window of a load that goes on, by the rates of the brokers.

    What transactions wrote to the brokers' log of them is spread evenly over the load.

    Args:
        messages_per_s, bytes_per_s: that all brokers took in the window.
        client: what we did in it.
        commits_per_s: offsets that our own groups committed at most.
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
    """What of everything written was not ours; None where that is not known.

    Args:
        grown: growth of our topics' end offsets, failed and doubled records included.
        at_rest: what was written before the run.
        commits_per_s: offsets that our consumer groups commit, at most [1/s].
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
