"""The engine's own consumers: one event loop per task fetches for all of its members."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence

from jobs.engine.connections import SocketBuffers, open_connections
from jobs.engine.consumers.client import Reading, Targets, is_fair_share, member_id_of
from jobs.engine.consumers.fetching import FetchEncoder
from jobs.engine.consumers.ledger import GroupLedger
from jobs.engine.consumers.membership import GroupError, Member, await_settled
from jobs.engine.consumers.reading import FetchConnection, Reader
from jobs.engine.consumers.timing import WindowClock
from jobs.engine.consumers.waker import Waker
from jobs.engine.driver_line import DriverLine, OrphanedError
from jobs.engine.pattern import TrialPlan
from jobs.engine.reopening import Key, Reopener
from jobs.engine.transport import Transport

_RECEIVE_BYTES = 1_048_576
_CHECK_INTERVAL_S = 0.1
_LEAVE_S = 10.0

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE


_LOOK_UP_S = 1.0


class WireConsumers:
    """The members that one task hosts; implements `jobs.engine.consumers.client.ConsumerClient`.

    Args:
        task: index among the consumer tasks, from 0.
    """

    def __init__(
        self, plan: TrialPlan, task: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        assert plan.consumers is not None
        self._plan, self._pattern, self._clock = plan, plan.consumers, clock
        self._hosted = self._pattern.members_of(task, plan.consumer_tasks)
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, _READ, None)
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._ledgers: dict[int, GroupLedger] = {}
        self._readers: list[Reader] = []
        self._connections: dict[Key, FetchConnection] = {}
        self._reopener = Reopener(self._open_all)
        self._selector.register(self._reopener, _READ, None)
        self._parent = os.getppid()
        self._next_check_s = 0.0
        self._waited_s = 0.0

    @property
    def connections(self) -> list[FetchConnection]:
        """One for each member and broker."""
        return list(self._connections.values())

    @property
    def members(self) -> list[Member]:
        """The members hosted here."""
        return [reader.member for reader in self._readers]

    def open(self) -> None:
        """See `ConsumerClient.open`."""
        plan = self._plan
        interval_s = 1.0 / plan.pattern.rate_records_per_s
        for group, number in self._hosted:
            ledger = self._ledgers.setdefault(group, GroupLedger(group, 0, interval_s))
            ledger.counts.members += 1
            member = Member(plan, group, number, self._waker.wake)
            self._readers.append(Reader(member, ledger, plan.leaders))
        self._connect()
        for member in self.members:
            member.start()
        members = self._pattern.members
        await_settled(
            self.members,
            lambda owned: is_fair_share(owned, plan.partitions, members),
            plan.connect_timeout_s,
        )

    def _connect(self) -> None:
        plan, pattern = self._plan, self._pattern
        readers = {member_id_of(plan, *key): r for key, r in zip(self._hosted, self._readers)}  # noqa: B905
        wanted = [(client_id, broker) for client_id in readers for broker in plan.brokers]
        for key, transport in self._open_all(wanted).items():
            encoder = FetchEncoder(plan.partitions, key[0], pattern)
            reader, crcs = readers[key[0]], pattern.check_crcs
            connection = FetchConnection(key, reader, encoder, plan.partitions, crcs)
            self._connections[key] = connection
            self._attach(connection, transport)

    def _open_all(self, wanted: Sequence[Key]) -> Mapping[Key, Transport]:
        plan = self._plan
        buffers = SocketBuffers(-1, self._pattern.receive_buffer_bytes)
        options = dict(plan.client_options)
        return open_connections(wanted, plan.brokers, options, plan.connect_timeout_s, buffers)

    def _attach(self, connection: FetchConnection, transport: Transport) -> None:
        connection.attach(transport)
        self._selector.register(transport, _READ, connection)

    def run(
        self, start_s: float, wall_offset_s: float, line: DriverLine | None, targets: Targets
    ) -> Reading:
        """See `ConsumerClient.run`."""
        self._window = WindowClock(self._plan, start_s, line)
        for connection in self._connections.values():
            connection.wall_offset_s = wall_offset_s
        return self._run_phases(start_s, targets)

    def _run_phases(self, start_s: float, targets: Targets) -> Reading:
        window, drain_s = self._window, self._plan.drain_timeout_s
        if self._pattern.start != "latest":
            time.sleep(max(0.0, start_s - self._clock()))  # a backlog waits for the load
        self._turn_until(lambda: window.start_s)
        waited_s = self._waited_s
        self._turn_until(lambda: window.end_s)
        busy = 1.0 - (self._waited_s - waited_s) / (window.end_s - window.start_s)
        deadline_s = window.end_s + 2 * drain_s  # the producers' drain, and then ours
        self._turn_until(lambda: deadline_s, lambda: self._has_reached(targets))
        shares = tuple(
            ledger.share(
                (p for r in self._readers_of(group) for p in r.positions.values()), targets()
            )
            for group, ledger in self._ledgers.items()
        )
        return Reading(shares, window.start_s, window.end_s, busy)

    def close(self) -> None:
        """See `ConsumerClient.close`."""
        for member in self.members:
            member.leave()
        for member in self.members:
            member.join(_LEAVE_S)
        self._reopener.close()
        for connection in self._connections.values():
            if connection.transport is not None:
                connection.transport.close()
        self._selector.close()
        self._waker.close()

    def _readers_of(self, group: int) -> list[Reader]:
        return [reader for reader in self._readers if reader.ledger.counts.group == group]

    def _has_reached(self, targets: Targets) -> bool:
        goal = targets()
        return goal is not None and all(reader.has_reached(goal) for reader in self._readers)

    # --- time ---------------------------------------------------------------------

    def _turn_until(
        self, phase_end_s: Callable[[], float], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        clock = self._clock
        while (now := clock()) < (end_s := phase_end_s()):
            if now >= self._next_check_s:
                self._check(now)
                if is_over():
                    return
                self._next_check_s = now + _CHECK_INTERVAL_S
            timeout_s = max(0.0, min(end_s, self._next_check_s) - now)
            events = self._selector.select(timeout_s)
            self._waited_s += clock() - now
            for key, mask in events:
                if key.data is None:
                    self._take_changes()
                    continue
                if mask & _WRITE and key.data.transport is not None:
                    self._flush(key.data)
                if mask & _READ and key.data.transport is not None:
                    self._receive(key.data)

    def _check(self, now: float) -> None:
        if os.getppid() != self._parent:
            raise OrphanedError("the process that started this load has ended, so it stops too")
        self._window.listen(now)
        self._take_changes()
        timeout_s = self._plan.pattern.request_timeout_ms / 1000.0
        for connection in self._connections.values():
            if connection.sent_s is None:
                self._ask(connection, now)
            elif now - connection.sent_s > timeout_s:
                self._lose(connection, "RequestTimedOutError")
        for group, ledger in self._ledgers.items():
            ledger.window_s = (self._window.start_s, self._window.end_s)
            ledger.sample_lag(sum(reader.lag for reader in self._readers_of(group)), now)

    def _take_changes(self) -> None:
        self._waker.clear()
        for key, transport in self._reopener.take():
            self._attach(self._connections[key], transport)
        for reader in self._readers:
            if reader.member.trouble is not None:
                raise GroupError(f"consumer group member {reader.member.trouble}")
            while reader.member.changes:
                reader.take(reader.member.changes.popleft())

    # --- bytes --------------------------------------------------------------------

    def _ask(self, connection: FetchConnection, now: float) -> None:
        if now < connection.retry_s:
            return
        if connection.transport is None:
            connection.look_up_leaders()
            connection.retry_s = now + _LOOK_UP_S
            return
        request = connection.request(now)
        if request is not None:
            connection.unwritten = memoryview(request)
            self._flush(connection)

    def _flush(self, connection: FetchConnection) -> None:
        transport = connection.transport
        assert transport is not None, "only what is attached is asked"
        try:
            taken = transport.send([connection.unwritten])
        except OSError as error:
            self._lose(connection, type(error).__name__)
            return
        had_to_wait = self._selector.get_key(transport).events & _WRITE
        connection.unwritten = connection.unwritten[taken:]
        if bool(connection.unwritten) != bool(had_to_wait):
            mask = _READ | (_WRITE if connection.unwritten else 0)
            self._selector.modify(transport, mask, connection)

    def _receive(self, connection: FetchConnection) -> None:
        assert connection.transport is not None, "only what is attached is listened to"
        try:
            size = connection.transport.receive_into(self._buffer)
        except OSError as error:
            self._lose(connection, type(error).__name__)
            return
        if size is None:
            return
        if size == 0:
            self._lose(connection, "ConnectionClosed")
            return
        now = self._clock()
        connection.stream.feed(self._buffer[:size], now)
        if connection.sent_s is None:
            self._ask(connection, now)

    def _lose(self, connection: FetchConnection, error: str) -> None:
        """Open the connection again, beside the loop, and see who leads meanwhile."""
        transport = connection.transport
        assert transport is not None, "it is lost once"
        self._selector.unregister(transport)
        transport.close()
        connection.detach(error)
        self._reopener.want(connection.key)
