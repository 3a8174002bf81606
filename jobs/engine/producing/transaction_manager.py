"""Transactions of one task's producers: their next requests, and the effects of the responses.

`transactions.py` has the rules for the transactions of one producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs.engine.producing.accumulator import Accumulator
from jobs.engine.producing.producer import Connection, Producer
from jobs.engine.producing.protocol import (
    AddPartitions,
    ControlRequest,
    EndTransaction,
    InitProducerId,
)
from jobs.engine.producing.transactions import (
    ABORTED,
    LOG_RECORDS_OF_AN_END,
    Transactions,
)


class TransactionManager:
    """The transactions of all producers. A producer without transactions may always send.

    Args:
        send: function (connections, request, time) that sends the request over one of the
            connections. If none of the connections is open, the function requests that they are
            opened, and returns False.
        backoff_s: function (number of failures) that returns how long to wait before the next retry
            [s].

    Attributes:
        open: producers with an open transaction.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        send: Callable[[list[Connection], ControlRequest, float], bool],
        backoff_s: Callable[[int], float],
    ) -> None:
        self._accumulator = accumulator
        self._send = send
        self._backoff_s = backoff_s
        self.open: set[Producer] = set()

    def admits(self, producer: Producer, partition: int, now: float) -> bool:
        """Whether the partition's batches may be sent. If the coordinator has not added the
        partition to the transaction yet, this method requests that the coordinator adds the
        partition.
        """
        transactions = producer.transactions
        if transactions is None or partition in transactions.partitions:
            return True
        if not transactions.is_failed:
            transactions.wanted.add(partition)
            if transactions.began_s is None:
                transactions.began_s = now
            self.open.add(producer)
            self.advance(producer, transactions, now)
        return False

    def advance(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """Send the transaction's next request, or schedule the transaction."""
        if transactions.request_in_flight is not None or self._accumulator.is_over:
            return
        ends_s, schedule = transactions.ends_s, self._accumulator.schedule
        if ends_s is not None and now >= ends_s and not transactions.is_ending:
            self._flush(producer, transactions, now)
        if transactions.is_over:
            self._begin(producer, transactions, now)
            return
        request = transactions.next_request()
        if request is None:
            if ends_s is not None and not transactions.is_ending:
                schedule(transactions, producer, ends_s)
        elif now < transactions.not_before_s:
            schedule(transactions, producer, transactions.not_before_s)
        else:
            at, ways = transactions.coordinator, producer.connections.values()
            transactions.request_in_flight = request
            if not self._send([each for each in ways if at in (None, each.broker)], request, now):
                self.lose(producer, request, now)

    def lose(self, producer: Producer, request: ControlRequest, now: float) -> None:
        """Schedule a retry of a request that no connection could take, or that was lost."""
        transactions = producer.transactions
        if transactions is not None and request is transactions.request_in_flight:
            transactions.lose_request(self._backoff_s(transactions.failures + 1), now)
            self._accumulator.schedule(transactions, producer, transactions.not_before_s)

    def handle_response(
        self, producer: Producer, request: ControlRequest, code: int, answer: Any, now: float
    ) -> None:
        """Handle the coordinator's response to a request; see `Delivery`.

        Raises:
            TransactionError: the coordinator refused the request, and a retry cannot succeed.
        """
        transactions = producer.transactions
        assert transactions is not None, "the producer has no transactions"
        assert transactions.request_in_flight is request, "another request is in flight"
        account, partitions = self._accumulator.account, transactions.partitions
        if code:
            wait_s = self._backoff_s(transactions.failures + 1)
            transactions.fail_request(code, wait_s, now)
            self.advance(producer, transactions, now)
            return
        transactions.complete_request()
        if isinstance(request, AddPartitions):
            account.counts.transaction_log_records += 1
            partitions.update(request.partitions)
            for partition in request.partitions:
                if (queue := producer.queues.get(partition)) is not None:
                    self._accumulator.schedule(queue, producer, now)
        elif isinstance(request, EndTransaction):
            account.counts.transaction_log_records += LOG_RECORDS_OF_AN_END
            if request.is_commit:
                account.count_commit(partitions, now - transactions.ending_since_s, now)
            else:
                account.count_abort(partitions, transactions.acked_records)
            partitions.clear()
            transactions.wanted.clear()
        elif isinstance(request, InitProducerId):
            assert producer.id_state is not None, "the producer is not idempotent"
            producer.id_state.renew_all(*answer)
            transactions.is_failed = False
        else:
            transactions.coordinator = answer[0]  # no connection if its broker joined later
        self.advance(producer, transactions, now)

    def settle(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """Handle the outcome of one of the transaction's batches."""
        transactions.unsettled -= 1
        if transactions.is_ending and not transactions.unsettled:
            self.advance(producer, transactions, now)

    def abort(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """Abort the transaction of a failed batch. Also fail the transaction's other unsent
        batches.
        """
        accumulator, is_first = self._accumulator, not transactions.is_failed
        transactions.is_failed = True
        transactions.end(now)
        if is_first and not accumulator.is_over:
            transactions.wanted.intersection_update(transactions.partitions)
            for queue in producer.queues.values():
                for batch in accumulator.take_before(queue):
                    accumulator.count_failed(producer, batch, ABORTED, now)
                    transactions.unsettled -= 1
                accumulator.schedule(accumulator.mute(queue, now), producer, now)
            producer.waits = True
            accumulator.await_open_batch(producer, now)
            accumulator.unblock(producer, now)
        self.settle(producer, transactions, now)

    def close(self, producer: Producer, dropped: int, now: float) -> None:
        """Commit the sent batches of an open transaction at the end of the last window."""
        transactions = producer.transactions
        if transactions is not None:
            transactions.unsettled -= dropped
            transactions.wanted.intersection_update(transactions.partitions)
            if transactions.is_open:
                transactions.end(now)
                self.advance(producer, transactions, now)

    def end(self) -> None:
        """End the drain: count the open transactions, whose outcome is unknown."""
        account = self._accumulator.account
        for producer in self.open:
            transactions = producer.transactions
            assert transactions is not None, "only producers with transactions are here"
            account.counts.transactions_aborted += 1 if transactions.partitions else 0
            for partition in transactions.partitions:
                account.count_duplicates(producer.index, partition, 1)
        self.open.clear()

    def _flush(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """Seal the due records, even if the batch is not full, and end the transaction."""
        accumulator, partition = self._accumulator, producer.partition
        transactions.end(now)
        if producer.closed_loop or producer.blocked or producer.due_s(producer.opened) > now:
            producer.waits = producer.ready_s <= now
        else:
            queue = accumulator.queue_of(producer, partition, now)
            batch = producer.seal(producer.records_by(now), now)
            queue.batches.append(batch)
            producer.waits = False
            transactions.unsettled += 1
            producer.buffered_bytes += batch.size
            accumulator.await_open_batch(producer, now)
        accumulator.filling.append(producer.connections[accumulator.leaders[partition]])

    def _begin(self, producer: Producer, transactions: Transactions, now: float) -> None:
        """Begin the next transaction with the batches that waited for it."""
        accumulator = self._accumulator
        self.open.discard(producer)
        waited, producer.waits = producer.waits, False
        for batch in transactions.begin():
            if accumulator.is_open:
                transactions.unsettled += 1
                accumulator.queue_of(producer, batch.partition, now).batches.append(batch)
        if waited:
            accumulator.await_open_batch(producer, now)
