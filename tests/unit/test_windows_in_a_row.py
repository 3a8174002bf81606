"""Windows that follow each other without a gap: nothing is counted twice, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest

from jobs.engine.consuming.ledger import GroupLedger, Position
from jobs.engine.producing.account import Account
from jobs.engine.task.control_channel import PIECE_LENGTH, DriverChannel, parse_window
from jobs.engine.task.window import Window
from jobs.trials import control_server
from jobs.trials.control_server import PIECES_MAX, TaskChannel
from metrics.sources.hosts.host_sample import HostSample
from metrics.traffic.pattern import Phases
from metrics.trial.adding import Histogram
from metrics.trial.client import Counts, ProducerReport, TaskReport
from metrics.trial.consumption import ReadRange
from tests.support.driven_delivery import DrivenDelivery


class AskingDriver:
    """A control channel that counts the comparisons of clocks."""

    begin_after_s = end_after_s = None

    def send(self, **message: object) -> None:
        """Take a message."""

    def report_over(self) -> None:
        """Take note of the end."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self.now_s = 0.0

    def receive(self) -> None:
        pass

    def ask_clock(self) -> None:
        self.asked_s.append(self.now_s)


def test_clocks_are_compared_within_each_of_several_windows() -> None:
    phases = Phases(warmup_s=0.0, measure_s=9.0)
    for count, asked_s in ((1, []), (2, [100.0, 105.0, 109.0, 114.0])):
        driver = AskingDriver()
        window: Window | None = Window.of(phases, 100.0, driver, count)  # type: ignore[arg-type]
        for tick in range(400, 4 * 118):
            driver.now_s = tick / 4
            assert window is not None
            if driver.now_s >= window.end_s and window.following() is not None:
                window = window.following()
                assert window is not None
            window.check_in(driver.now_s)
        assert driver.asked_s == asked_s


def next_window(driven: DrivenDelivery, now: float) -> Account:
    following = driven.account.window.following()
    assert following is not None
    return driven.delivery.begin_window(following, now)


def test_sending_continues_over_the_end_of_a_window_and_each_record_is_counted_once() -> None:
    driven = DrivenDelivery(window=Window(0.0, 3.0, left=2))
    accounts = []
    for second in range(9):
        if second and second % 3 == 0:
            accounts.append(next_window(driven, float(second)))
        driven.until(float(second))
        if second % 3 != 2:  # the answer to the last record of a window comes in the next one
            while driven.one.in_flight:
                driven.answer(driven.one, second + 0.5)
    driven.until(20.0)
    while driven.one.in_flight:
        driven.answer(driven.one, 9.5)
    accounts.append(driven.account)
    assert [each.counts.sent_records for each in accounts] == [3, 3, 3]
    assert [each.counts.acked_records for each in accounts] == [2, 3, 3]
    assert [sum(each.counts.acked_by_partition.values()) for each in accounts] == [2, 3, 4]
    assert driven.account.offsets_total == Counter({0: 9})
    assert [each.counts.by_broker[1].requests for each in accounts] == [3, 3, 3]
    assert [each.counts.by_broker[1].missing_records for each in accounts[:2]] == [1, 1]
    assert accounts[0].latency.histogram.count == 2


def test_a_group_starts_from_zero_in_each_window() -> None:
    ledger, position = GroupLedger(3, 2, 0.001), Position(7, 100)
    ledger.window = Window(10.0, 12.0, left=1)
    for now in (10.5, 11.5):
        position.advance(5, position.offset + 5)
        ledger.count_read(5, 500, 0.01, now)
        ledger.sample_lag(1, now)
    following = ledger.window.following()
    assert following is not None
    first = ledger.begin_window([position], following)
    position.advance(4, position.offset + 4)
    ledger.count_read(4, 400, 0.01, 13.0)
    second = ledger.share([position])
    assert (first.counts.group, first.counts.members, second.counts.members) == (3, 2, 2)
    assert (first.counts.records, second.counts.records) == (10, 4)
    assert first.read_ranges == (ReadRange(7, 100, 110, 10),)
    assert second.read_ranges == (ReadRange(7, 110, 114, 4),)
    assert first.counts.last_read_s == pytest.approx(1.5)
    assert second.counts.last_read_s == pytest.approx(1.0)
    assert (first.latency_us.count, second.latency_us.count) == (10, 4)


HOST_SAMPLES = (
    HostSample("somewhere", 11.25, {"cpu_s": 3.5}),
    HostSample("somewhere", 12.0, {}, "no such file"),
)


class RecordedChannel(DriverChannel):
    """A control channel that keeps the task's messages."""

    clock_offset = clock_change = _first_offset = _last_offset = None

    def take_host_samples(self) -> tuple[HostSample, ...]:
        return HOST_SAMPLES

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.place = lambda report: report

    def send(self, **message: object) -> None:
        self.messages.append(message)


def report(task: int, producers: int) -> TaskReport:
    counts = Counts(offered_records=10 * producers, acked_by_partition={3: 4, 9: 1})
    counts.by_producer.acked.update({n * 7919: n * 104_729 for n in range(producers)})
    produced = ProducerReport(counts, Histogram([1.0, 5e6]), Histogram([3.0]))
    return TaskReport(task, "somewhere", 10.0, 13.0, produced)


def task_channel(tasks: int = 1, consumer_tasks: int = 0) -> TaskChannel:
    return TaskChannel("127.0.0.1", 1, tasks, lambda work: work(), consumer_tasks)


def test_the_account_of_a_window_arrives_whole_once_all_tasks_have_sent_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parse = Mock(wraps=parse_window)
    monkeypatch.setattr(control_server, "parse_window", parse)
    channel = task_channel(tasks=1, consumer_tasks=1)
    for task, producers in ((0, 5_000), (1, 0)):
        assert channel.take_window(2) is None
        recorder = RecordedChannel()
        recorder.send_window(2, report(task, producers))
        assert (len(recorder.messages) > 3) == (producers > 0), "in pieces, where it is long"
        assert all(len(str(each["piece"])) <= PIECE_LENGTH for each in recorder.messages)
        for message in recorder.messages:
            channel.receive(task, message)
    parse.assert_not_called()  # of 500 tasks that takes seconds, without a heartbeat to any
    found = channel.take_window(2)
    assert found is not None
    assert sorted(each.task_id for each in found) == [0, 1]
    (long,) = [each for each in found if each.task_id == 0]
    assert long.produced is not None
    assert long.produced.counts.by_producer.acked[4_999 * 7919] == 4_999 * 104_729
    assert long.produced.counts.acked_by_partition == {3: 4, 9: 1}
    assert long.produced.latency_us.count == 2
    assert long.host_samples == HOST_SAMPLES
    assert channel.take_window(2) is None, "each window once"


def test_acknowledged_records_count_from_the_start_of_each_window() -> None:
    channel, recorder = task_channel(), RecordedChannel()
    channel.receive(0, {"at_s": 2.0, "acked": 500})
    assert channel.acked() == [(2.0, 500)]
    recorder.send_window(1, report(0, 1))
    for message in recorder.messages:
        channel.receive(0, message)
    assert channel.acked() == []
    channel.receive(0, {"at_s": 0.5, "acked": 100})
    assert channel.acked() == [(0.5, 100)]


def test_a_malformed_or_endless_account_ends_the_channel() -> None:
    text = {"window": 1, "piece": "aGVsbG8=", "left": 0}
    messages: list[dict[str, Any]] = [
        *(text | {"piece": piece} for piece in ("no base64", "aGVsbG8=", "")),
        {"window": 1, "piece": "aGVsbG8="},
        text | {"window": None},
    ]
    for message in messages:
        with pytest.raises(control_server._MALFORMED):
            task_channel().receive(0, message)
    channel = task_channel()
    for _ in range(PIECES_MAX):
        channel.receive(0, text | {"left": 5})
    with pytest.raises(ValueError, match="more than 10000 lines"):
        channel.receive(0, text | {"left": 5})
