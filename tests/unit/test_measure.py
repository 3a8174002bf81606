"""A trial from its preparation to its row, and windows of one load, with a scripted cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.config import load as load_config
from jobs.console.events import RecordingReporter, TrialFinished, TrialStarted
from jobs.trials import measure
from jobs.trials.context import TrialHistory
from jobs.trials.load import GeneratorError, Load
from jobs.trials.measure import Rig, SearchProgress, TrialMeasurer, written_records
from jobs.trials.sampling import FRESH_S, READING, lacking_now
from metrics.common.errors import NoConclusionError
from metrics.sources.beans import Role
from metrics.sources.hosts.host_sample import NoHosts
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo
from metrics.trial.client import Counts, ProducerReport, TaskReport
from metrics.trial.trial import Trial
from search.model import Verdict
from tests.support.contexts import run_context
from tests.support.evidence import busy_samples
from tests.support.running_loads import SentChannel
from tests.support.scripted_source import ScriptedSource

BEFORE = {0: 100, 1: 50}
ACKED = 30
CONFIG = load_config(
    "testbed", "demo", "default",
    ["workload.message_bytes=[1000]", "workload.trial.warmup_s=0", "workload.trial.measure_s=4"],
)  # fmt: skip


class Source(ScriptedSource):
    """A broker with samples around the window."""

    def sample_all(self) -> list[BrokerSample]:
        return busy_samples(6)


class Cluster:
    """The parts of a run that a trial uses; tasks report at once what was acknowledged.

    Attributes:
        ends: end offsets at each look, the last one from then on.
        settled: what the guards counted after each load.
    """

    def __init__(self, *ends: Mapping[int, int], error: Exception | None = None) -> None:
        self.ends: list[Mapping[int, int]] = [BEFORE, *ends]
        self.error, self.settled = error, list[Any]()
        self.refusals: tuple[Any, ...] = ()
        self.loads: list[Load] = []
        self.ends_load: str | None = None
        self.reporter, self.history = RecordingReporter(), TrialHistory()
        none = lambda *_: None  # noqa: E731 - as short as what it stands for
        self.kept: list[Trial] = []
        tables = SimpleNamespace(
            settle=none, append_trial=lambda trial, *_: self.kept.append(trial)
        )
        guards = SimpleNamespace(
            admit=none, require_room=none, require_untripped=none, await_whole=none, ends_load=None,
            settle=lambda _, client: self.settled.append(client), watch=lambda *_: nullcontext(),
        )  # fmt: skip
        topics: Any = SimpleNamespace(
            end_offsets=self.end_offsets, moved_leaders=lambda _: {}, replica_ends=lambda _: None
        )
        self.context = run_context(
            run_id="r", config=CONFIG, reporter=self.reporter, history=self.history, tables=tables,
            guards=guards, topics=topics, source=Source(), hosts=NoHosts(),
            addresses={1: ("a", 1)}, generator=self,
            cluster=SimpleNamespace(broker_control=None, check=none),
        )  # fmt: skip
        self.guards = guards
        topic = TopicSet(("t",), 1_000, {0: (1,), 1: (1,)})
        passing = lambda _: self.refusals  # noqa: E731
        gates: Any = SimpleNamespace(
            level=None, under_replicated_at_rest={}, pass_all=passing, record_load_end=none,
            pass_between_windows=passing,
        )  # fmt: skip
        opened: Any = SimpleNamespace(open=lambda _: topic)
        self.rig = Rig(self.context, opened, gates)
        self.measurer = TrialMeasurer(self.rig, 1_000, SearchProgress("a test", 3))

    def end_offsets(self, _: TopicSet) -> Mapping[int, int]:
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    def offer(self, load: Load, watch: Any) -> list[TaskReport]:
        self.loads.append(load)
        channel = SentChannel(time.time())
        with watch(channel):
            if self.error is not None:
                raise self.error
            over = iter([[report(window)] for window in range(1, load.windows)])
            channel.take_window = lambda number: next(over, None)  # type: ignore[method-assign]
        return [report(load.windows)]


def report(window: int) -> TaskReport:
    start_s = 1_000_000.0 + 4.0 * (window - 1)
    counts = Counts(
        offered_records=ACKED, sent_records=ACKED, acked_records=ACKED,
        acked_by_partition={0: ACKED // 2, 1: ACKED // 2}, sent_by_partition={0: 15, 1: 15},
    )  # fmt: skip
    return TaskReport(0, "h", start_s, start_s + 4.0, ProducerReport(counts))


@pytest.fixture(autouse=True)
def _fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    clock = SimpleNamespace(
        monotonic=lambda: float(next(now)), sleep=lambda _: None, time=time.time
    )
    monkeypatch.setattr(measure, "time", clock)


GROWN = {0: 115, 1: 65}


def test_a_trial_is_offered_judged_kept_and_said() -> None:
    cluster = Cluster({0: 110, 1: 50}, {0: 110, 1: 65}, GROWN)
    trial = cluster.measurer.trial(4)
    (load,) = cluster.loads
    assert (load.name, load.end_offsets, load.windows) == ("r-1", BEFORE, 1)
    assert cluster.kept == cluster.history.trials == [trial]
    assert (trial.number, trial.load, trial.held, trial.steady) == (1, 4, False, False)
    assert trial.evidence.end_offsets == {0: (100, 115), 1: (50, 65)}
    assert trial.evidence.unreplicated_records == 20, "as at the first look"
    assert trial.evidence.client.counts.acked_total == ACKED
    assert trial.evidence.load_s is not None
    started, finished = (e for e in cluster.reporter.events if not isinstance(e, str))
    assert isinstance(started, TrialStarted) and started.reason == "a test"
    assert isinstance(finished, TrialFinished) and finished.trials_left == 2
    assert [each.counts.acked_total for each in cluster.settled] == [ACKED]
    waiting = Cluster({0: 110, 1: 50}).measurer.trial(4)
    ends = waiting.evidence.end_offsets
    assert ends is not None and ends[1] == (50, 50), "the wait for followers ends"


def test_a_trial_of_its_own_configuration_is_one_of_the_run() -> None:
    cluster = Cluster(GROWN, GROWN, BEFORE, GROWN)
    own = CONFIG.with_workload(trial=replace(CONFIG.workload.trial, measure_s=5.0))
    made = [cluster.rig.trial(1_000, 4, config=own), cluster.rig.trial(1_000, 4)]
    assert [each.pattern.phases.measure_s for each in made] == [5.0, 4.0]
    assert cluster.history.trials == made


def test_a_trial_that_cannot_be_made_is_kept_as_invalid() -> None:
    failed = Cluster(error=GeneratorError("task 1 was lost"))
    assert failed.measurer.trial(4).reasons[0].text == "task 1 was lost"
    assert failed.settled == [None]
    guarded = Cluster(GROWN)
    guarded.guards.ends_load = "a disk is full"
    assert guarded.measurer.trial(4).reasons[0].text == "ended by a guard: a disk is full"
    for made in (failed, guarded):
        assert [each.verdict for each in made.kept] == [Verdict.INVALID]


def test_windows_of_one_load_are_trials_whose_records_add_up() -> None:
    cluster, into = Cluster({0: 130, 1: 80}), list[Trial]()
    cluster.measurer.hold_windows(4, 2, into)
    assert cluster.loads[0].whole.phases.measure_s == 8.0
    assert into == cluster.kept and [each.number for each in into] == [1, 2]
    assert all(each.held for each in into)
    assert [each.counts.acked_total for each in cluster.settled] == [2 * ACKED]
    less = Cluster(GROWN)
    with pytest.raises(NoConclusionError, match="the records of the whole load do not add up"):
        less.measurer.hold_windows(4, 2, [])
    failed, into = Cluster(error=GeneratorError("task 1 was lost")), []
    failed.measurer.hold_windows(4, 2, into)
    assert [each.reasons[0].text for each in into] == ["task 1 was lost"]


def test_records_that_wait_for_followers_are_not_those_of_others() -> None:
    assert written_records(BEFORE, {0: 110, 1: 50}, 30) == 30
    assert written_records(BEFORE, {0: 115, 1: 70}, 30) == 35, "failed and repeated ones, too"


# --- partitions that lack a replica --------------------------------------------------------


NOW_S = 1_000.0


def sample(broker: int, value: float | None, at_s: float = NOW_S - 1.0) -> BrokerSample:
    return BrokerSample(broker, at_s, {} if value is None else {READING: value})


def test_each_broker_has_to_show_its_own_partitions() -> None:
    mute = BrokerSample(1, NOW_S, error="no answer")
    resting = [sample(1, 0.0), sample(2, 0.0)]
    cases: list[tuple[list[BrokerSample], float | None]] = [
        (resting, 0.0),
        ([sample(1, 2.0), sample(2, 1.0)], 3.0),
        ([sample(1, 5.0, NOW_S - 2.0), *resting], 0.0),  # the last counts
        ([sample(1, 0.0), sample(2, None)], None),
        ([sample(1, 0.0)], None),
        ([sample(2, 0.0, NOW_S - FRESH_S - 0.1), sample(1, 0.0)], None),
        ([sample(2, 0.0), mute], None),
        ([*resting, mute], None),
        ([*resting, sample(3, 7.0)], 0.0),  # a controller
        ([], None),
    ]
    context = context_of((1, 2), (1, 2))
    for samples, expected in cases:
        sampler: Any = SimpleNamespace(samples_taken=lambda found=samples: found)
        assert lacking_now(sampler, context, lambda: NOW_S) == expected, samples


def context_of(nodes: tuple[int, ...], addresses: tuple[int, ...]) -> Any:
    """A context with the metrics of some brokers."""
    roles = frozenset({Role.BROKER})
    source = SimpleNamespace(nodes={each: NodeInfo(each, "4.1", roles) for each in nodes})
    return SimpleNamespace(source=source, addresses=dict.fromkeys(addresses, ("h", 1)))


def test_metrics_of_some_brokers_say_nothing_of_the_partitions_of_the_others() -> None:
    sampler: Any = SimpleNamespace(samples_taken=lambda: [sample(1, 0.0), sample(2, 0.0)])
    cases: list[tuple[tuple[int, ...], tuple[int, ...], float | None]] = [
        ((1, 2), (1, 2), 0.0), ((1, 2), (1, 2, 3), None), ((1,), (1, 2), None), ((), (), None),
    ]  # fmt: skip
    for nodes, addresses, expected in cases:
        assert lacking_now(sampler, context_of(nodes, addresses), lambda: NOW_S) == expected
