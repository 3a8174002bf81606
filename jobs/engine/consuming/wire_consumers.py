"""The engine's own consumers. One event loop per task fetches for all members of the task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from jobs.engine.consuming.group_member import Member, await_settled
from jobs.engine.consuming.ledger import GroupLedger, Position
from jobs.engine.consuming.reading import FetchChannel, FetchEncoder, Reader
from jobs.engine.network.apis import FETCH
from jobs.engine.network.pacing import Key
from jobs.engine.network.reopening import Reopener
from jobs.engine.network.socket_watch import SocketWatch
from jobs.engine.network.sockets import Sockets
from jobs.engine.producing.account import window_report
from jobs.engine.task.client import Targets, connector_of
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from jobs.engine.task.window import NOT_YET, Window
from metrics.trial.client import ConsumerReport, TaskReport
from metrics.trial.consumption import GroupShare
from metrics.trial.sockets import SocketCounts

_RECEIVE_BYTES = 1_048_576
_CHECK_INTERVAL_S = 0.1
_LOOK_EVERY = 3
_LEAVE_S = 10.0
_LOOK_UP_S = 1.0


class WireConsumers:
    """The group members of one task; a `TaskClient`, and the `Owner` of the members' sockets.

    Args:
        task: index among the consumer tasks, from 0.
    """

    def __init__(self, plan: TrialPlan, task: int) -> None:
        self._plan, self._options = plan, plan.pattern.consumers
        self._task = plan.tasks + task
        self._hosted = self._options.members_of(task, plan.consumer_tasks)
        self._sockets = Sockets(self, time.monotonic, _RECEIVE_BYTES)
        self._ledgers: dict[int, GroupLedger] = {}
        self._readers: list[Reader] = []
        self._channels: dict[Key, FetchChannel] = {}
        self._connector = connector_of(plan, self._options, (FETCH,))
        self._reopener = Reopener(self._connector, self._sockets.wake)
        self._window = NOT_YET
        self._next_check_s = 0.0
        self._checks = 0
        self._watch = SocketWatch([])

    @property
    def channels(self) -> list[FetchChannel]:
        """All channels: one for each pair of a member and a broker."""
        return list(self._channels.values())

    @property
    def members(self) -> list[Member]:
        """All group members of this task."""
        return [reader.member for reader in self._readers]

    def open(self) -> None:
        """Join the groups; see `TaskClient.open`."""
        plan = self._plan
        interval_s = 1.0 / plan.pattern.producer.rate_records_per_s
        for group, number in self._hosted:
            ledger = self._ledgers.setdefault(group, GroupLedger(group, 0, interval_s))
            ledger.counts.members += 1
            member = Member(plan, group, number, self._sockets.wake)
            self._readers.append(Reader(member, ledger, plan.leaders))
        self._connect()
        for member in self.members:
            member.start()
        await_settled(self.members, plan)

    def _connect(self) -> None:
        plan, options = self._plan, self._options
        readers = {reader.member.name: reader for reader in self._readers}
        wanted = [(name, broker) for name in readers for broker in plan.brokers]
        for key, transport in self._connector.open(wanted).items():
            encoder = FetchEncoder(plan.partitions, plan.client_id(key[0]), options)
            channel = self._channels[key] = FetchChannel(key, readers[key[0]], encoder)
            self._sockets.add(channel, transport)

    def run(
        self,
        start_s: float,
        wall_offset_s: float,
        driver: DriverChannel | None,
        acknowledged: Targets,
    ) -> TaskReport:
        """Read the load; see `TaskClient.run`."""
        phases = self._plan.pattern.phases
        self._window = Window.of(phases, start_s, driver, self._plan.windows)
        for channel in self.channels:
            channel.wall_offset_s = wall_offset_s
        for ledger in self._ledgers.values():
            ledger.window = self._window
        if self._options.start != "latest":
            time.sleep(max(0.0, start_s - time.monotonic()))  # read the backlog under load only
        self._watch = SocketWatch([(channel.broker, channel) for channel in self.channels])
        self._set_readers(True)
        self._turn_until(lambda: self._window.start_s)
        busy, sockets = self._measure()

        def report(shares: Iterable[GroupShare]) -> TaskReport:
            consumed = ConsumerReport(busy, tuple(shares), sockets)
            return window_report(self._task, self._window, wall_offset_s, consumed=consumed)

        ledgers = self._ledgers
        while (following := self._window.following()) is not None:
            over = report(
                ledger.begin_window(self._positions_of(group), following)
                for group, ledger in ledgers.items()
            )
            if driver is not None:
                driver.send_window(self._window.number, over)
            self._window = following
            busy, sockets = self._measure()
        # The producers drain first, and then the consumers.
        deadline_s = self._window.end_s + 2 * phases.drain_timeout_s
        self._turn_until(lambda: deadline_s, lambda: self._has_reached(acknowledged()))
        self._set_readers(False)
        return report(
            ledger.share(self._positions_of(group), acknowledged())
            for group, ledger in ledgers.items()
        )

    def _set_readers(self, are_there: bool) -> None:
        for member in self.members:
            member.has_reader = are_there

    def _measure(self) -> tuple[float, dict[int, SocketCounts]]:
        """Run the window; return the share of time in which the loop was busy, and the sockets'
        counts.
        """
        waited_s, window = self._sockets.waited_s, self._window
        self._watch.begin()
        self._turn_until(lambda: window.end_s)
        sockets = self._watch.end(window.duration_s)
        return 1.0 - (self._sockets.waited_s - waited_s) / window.duration_s, sockets

    def close(self) -> None:
        """Leave the groups and disconnect; see `TaskClient.close`."""
        for member in self.members:
            member.leave()
        for member in self.members:
            member.join(_LEAVE_S)
        self._reopener.close()
        for channel in self.channels:
            channel.close()
        self._sockets.close()

    def _readers_of(self, group: int) -> list[Reader]:
        return [reader for reader in self._readers if reader.ledger.counts.group == group]

    def _positions_of(self, group: int) -> list[Position]:
        return [at for r in self._readers_of(group) for at in r.positions.values()]

    def _has_reached(self, goal: Mapping[int, int] | None) -> bool:
        return goal is not None and all(reader.has_reached(goal) for reader in self._readers)

    # --- time ---------------------------------------------------------------------

    def _turn_until(
        self, phase_end_s: Callable[[], float], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        while (now := time.monotonic()) < (end_s := phase_end_s()):
            if now >= self._next_check_s:
                self._check(now)
                if is_over():
                    return
                self._next_check_s = now + _CHECK_INTERVAL_S
            self._sockets.wait(max(0.0, min(end_s, self._next_check_s) - now))

    def _check(self, now: float) -> None:
        self._window.check_in(now)
        self.handle_woken()
        self._checks += 1
        if self._checks % _LOOK_EVERY == 0:
            self._watch.look()
        timeout_s = self._plan.pattern.producer.options.request_timeout_ms / 1000.0
        for channel in self.channels:
            if channel.needs_successor(now):
                self._reopener.request(channel.key)
            if channel.sent_s is None:
                self._send_request(channel, now)
            elif now - channel.sent_s > timeout_s:
                self._sockets.lose(channel, "RequestTimedOutError")
        for group, ledger in self._ledgers.items():
            ledger.sample_lag(sum(reader.lag for reader in self._readers_of(group)), now)

    def handle_woken(self) -> None:
        """Take the connections that were opened again, and the changed assignments; see `Owner`."""
        for key, transport in self._reopener.take():
            self._channels[key].successor = transport
        for reader in self._readers:
            reader.member.check()
            while reader.member.changes:
                reader.apply(reader.member.changes.popleft())

    # --- bytes --------------------------------------------------------------------

    def _send_request(self, channel: FetchChannel, now: float) -> None:
        if channel.successor is not None:
            channel.reset()
            self._sockets.replace(channel)
        if now < channel.retry_s:
            return
        if channel.transport is None:
            channel.look_up_leaders()
            channel.retry_s = now + _LOOK_UP_S
            return
        request = channel.next_request(now)
        if request is not None:
            self._sockets.send(channel, [request])

    def handle_received(self, channel: FetchChannel, data: memoryview, now: float) -> None:
        """Parse the received bytes, and send the next request; see `Owner`."""
        channel.stream.feed(data, now)
        if channel.sent_s is None:
            self._send_request(channel, now)

    def handle_flushed(self, channel: FetchChannel, now: float) -> None:
        """Do nothing; the channel waits for the answer. See `Owner`."""

    def handle_lost(self, channel: FetchChannel, error: str, now: float) -> None:
        """Reopen the connection on another thread; see `Owner`."""
        channel.handle_lost(error)
        if channel.successor is None:
            self._reopener.request(channel.key)
