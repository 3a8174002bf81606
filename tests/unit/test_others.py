"""The load of other clients: its level, and how far a trial was off it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.opening import LastLoad
from jobs.config.goal import GuardLimits
from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.trials import gates as gates_module
from jobs.trials.context import TrialHistory
from jobs.trials.gates import FIRST_LOOK_S, LOOK_MAX_S, OTHERS_PATIENCE_S, RENEWAL_S, Gates
from jobs.trials.recovery import DEADLINE_S
from metrics.sources.sample import BrokerSample
from metrics.traffic.clients import ConsumerOptions
from metrics.trial.client import ClientWindow, Counts
from metrics.trial.consumption import GroupCounts, GroupWindow
from metrics.trial.others import (
    CONTROL_BATCH_BYTES,
    TRANSACTION_LOG_RECORD_BYTES,
    ClientTraffic,
    Level,
    OtherLoad,
    OwnTraffic,
    Rate,
    others_at,
    others_in,
    traffic_beside,
)
from search.model import Verdict
from tests.support.contexts import run_context
from tests.support.evidence import client, judged, rules, sample, with_one
from tests.support.gated_cluster import BROKERS, TOPIC, Cluster, gates_of

OURS = OtherLoad(0.0, 0.0, 0.0, 0.0, 10_000.0, 10e6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""A trial of 10,000 messages/s and 10 MB/s without other clients."""


def beside(
    messages_per_s: float = 0.0, bytes_per_s: float | None = 0.0, rest: float = 0.0,
    deviation: float = 0.0,
) -> OtherLoad:  # fmt: skip
    """The trial beside others, who wrote `rest` bytes in messages of 1 kB before it."""
    return replace(
        OURS, messages_per_s=messages_per_s, bytes_per_s=bytes_per_s,
        all_messages_per_s=10_000 + messages_per_s, all_bytes_per_s=10e6 + (bytes_per_s or 0.0),
        at_rest_messages_per_s=rest / 1_000, at_rest_bytes_per_s=rest,
        at_rest_messages_deviation_per_s=deviation / 1_000, at_rest_bytes_deviation_per_s=deviation,
    )  # fmt: skip


def reading(read: float, rest: float, deviation: float = 0.0) -> OtherLoad:
    """The trial beside others who only read."""
    return replace(
        OURS, read_bytes_per_s=read, all_read_bytes_per_s=read, at_rest_read_bytes_per_s=rest,
        at_rest_read_bytes_deviation_per_s=deviation,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "rule"),
    [
        (beside(), ""),
        (beside(400.0, 0.4e6), ""),
        (beside(600.0, 0.6e6), "others_loaded"),
        (beside(40.0, 4e6), "others_loaded"),  # few and large
        (beside(4_000.0, 0.4e6), "others_loaded"),  # many and small
        (beside(4_000.0, None), "others_loaded"),
        (beside(4_000.0, 4e6, rest=4e6), ""),  # as before the run
        (beside(4_000.0, 4e6, rest=3e6), "others_loaded"),
        (beside(4_000.0, 4e6, rest=3e6, deviation=0.4e6), ""),  # it swings so far
        (reading(4e6, rest=1e6), "others_loaded"),  # consumers that catch up
        (reading(4e6, rest=1e6, deviation=1.5e6), ""),
        (beside(4_000.0, 4e6, rest=4.5e6), ""),
        (beside(4_000.0, 4e6, rest=5e6), "others_less"),
        (beside(4_000.0, 4e6, rest=5e6, deviation=0.4e6), ""),
        (beside(0.0, 0.0, rest=4e6), "others_less"),
        (reading(1e6, rest=4e6), "others_less"),
    ],
)
def test_another_load_of_others_makes_a_trial_invalid(others: OtherLoad, rule: str) -> None:
    judgement = judged(others=others)
    assert judgement.verdict is (Verdict.INVALID if rule else Verdict.SUSTAINED)
    assert rules(judgement) == {rule} or not rule
    overload = judged(others=others, brokers=with_one(handler_idle=0.1)).verdict
    if rule == "others_less":
        assert overload is Verdict.OVERLOADED, "they have less room beside it"
    assert overload in {judgement.verdict, Verdict.OVERLOADED}


def test_the_reason_states_load_and_level() -> None:
    (reason,) = judged(others=beside(4_000.0, 4e6, rest=1e6, deviation=0.2e6)).reasons
    assert reason.text.startswith(
        "other clients wrote 4,000 messages/s, and 1,000 (± 200) before the trial; the rise is "
    )


def polls(at_s: float, messages: float, log_bytes: float, read: float) -> list[BrokerSample]:
    """Counters of two brokers."""
    counters = {"messages_in": messages, "bytes_in": log_bytes, "bytes_out": read}
    return [sample(at_s, counters, broker_id) for broker_id in (1, 2)]


def window(counts: Counts, groups: tuple[GroupWindow, ...] = ()) -> ClientWindow:
    return replace(client(), counts=counts, groups=groups)


TRAFFIC = ClientTraffic(20.0, 12_000.0, 2_400_000.0, 5_000_000.0)
COUNTS = Counts(acked_by_partition={0: 5_000, 1: 4_000}, log_bytes=1_800_000)


def test_the_load_of_others_is_all_traffic_without_the_runs_own() -> None:
    level = Level(Rate(20.0, 2.0), Rate(4_000.0, 400.0), Rate(200_000.0, 9_000.0))
    # A thousand records of the run are in the logs twice.
    found = others_in(TRAFFIC, 10_000, window(COUNTS), level)
    assert found == OtherLoad(
        100.0, 20_000.0, 20.0, 4_000.0, 600.0, 120_000.0,
        250_000.0, 200_000.0, 250_000.0, 2.0, 400.0, 9_000.0,
    )  # fmt: skip
    unknown = others_in(TRAFFIC, 10_000, window(Counts()), None)
    assert unknown is not None and unknown.bytes_per_s is None
    assert (unknown.messages_per_s, unknown.at_rest_read_bytes_per_s) == (100.0, None)
    assert others_in(None, 10_000, window(COUNTS), None) is None


def test_transactions_and_commits_of_the_run_are_its_own() -> None:
    with_ends = replace(
        COUNTS, control_records_by_partition={0: 500}, transaction_log_records=1_000
    )
    ended = others_in(TRAFFIC, 10_500, window(with_ends), None)
    assert ended is not None and ended.messages_per_s == pytest.approx((2_000 - 500 - 1_000) / 20)
    own_bytes = 2_000_000 + 500 * CONTROL_BATCH_BYTES + 1_000 * TRANSACTION_LOG_RECORD_BYTES
    assert ended.bytes_per_s == pytest.approx((2_400_000 - own_bytes) / 20)
    commits = ConsumerOptions(groups=2, auto_commit_interval_ms=1_000).commits_per_s(50)
    others = others_in(TRAFFIC, 10_000, window(COUNTS), None, commits)
    assert commits == 100.0 and others is not None and others.messages_per_s == 0.0


def test_reads_of_our_groups_are_not_those_of_others() -> None:
    groups = tuple(GroupWindow(GroupCounts(n), records_total=9_000) for n in range(2))
    found = others_in(TRAFFIC, 9_000, window(COUNTS, groups), None)
    assert found is not None
    assert found.read_bytes_per_s == pytest.approx((5_000_000 - 2 * 1_800_000) / 20)
    hidden = others_in(TRAFFIC, 9_000, window(replace(COUNTS, log_bytes=None), groups), None)
    assert hidden is not None and hidden.read_bytes_per_s is None
    group = GroupWindow(GroupCounts(0, wire_bytes=1_000_000))
    inside = replace(window(COUNTS, (group,)), start_s=0.0, end_s=20.0)
    assert others_at(TRAFFIC, inside, None).read_bytes_per_s == pytest.approx(200_000.0)


def test_a_broker_without_counters_or_with_a_restart_makes_the_load_of_others_unknown() -> None:
    whole = {"messages_in": 5.0, "bytes_in": 5.0}
    first, last = [sample(0.0, whole)], [sample(9.0, {"messages_in": 4.0, "bytes_in": 9.0})]
    assert ClientTraffic.between(first, last, (1,)) is None
    assert ClientTraffic.between(first, [sample(9.0, {"messages_in": 9.0})], (1,)) is None
    assert ClientTraffic.between(first, [sample(9.0, whole)], (1, 2)) is None
    assert ClientTraffic.between(first, [sample(9.0, whole)], ()) is None
    plain = ClientTraffic.between(first, [sample(9.0, whole)], (1,))
    assert plain is not None and plain.read_bytes is None, "it shows no reads"
    first, last = polls(0.0, 50.0, 5e3, 1e3), polls(20.0, 6_050.0, 1_205e3, 2_501e3)
    assert ClientTraffic.between(first, last, (1, 2)) == TRAFFIC, "of all brokers"


def test_a_level_is_the_mean_of_its_looks_with_their_scatter() -> None:
    looks = [ClientTraffic(1.0, 100.0, 1e6, 0.0), ClientTraffic(3.0, 60.0, 6e6, 0.0)]
    level = Level.of(looks)
    assert level is not None
    assert level.messages.mean == 40.0
    assert level.messages.deviation == pytest.approx(((60.0**2 + 3 * 20.0**2) / 4) ** 0.5)
    assert level.written == Rate(1.75e6, pytest.approx(0.4330127e6))  # type: ignore[arg-type]
    assert Level.of([]) is None
    assert Level.of(looks[:1]) == Level(Rate(100.0), Rate(1e6), Rate(0.0))


class Shared(Cluster):
    """A cluster to which others write at a rate that a test changes [messages/s]."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = 0.0
        self._messages, self._at_s = 0.0, self.now_s

    def sample_all(self) -> list[BrokerSample]:
        found = super().sample_all()
        self._messages += self.rate * (self.now_s - self._at_s)
        self._at_s = self.now_s
        shown = {"messages_in": self._messages, "bytes_in": 1_000 * self._messages}
        return [replace(each, values={**each.values, **shown}) for each in found]


class Bed:
    """The gates of a shared cluster."""

    def __init__(self, rate: float, is_shared: bool = True) -> None:
        self.cluster = Shared()
        self.cluster.rate = rate
        self.reporter = RecordingReporter()
        self.last_load = LastLoad()
        self.gates = self.new_gates(is_shared)
        began_s = self.cluster.now_s
        self.gates.take_baseline()

        self.took_s = self.cluster.now_s - began_s

    def new_gates(self, is_shared: bool) -> Gates:
        return gates_of(
            self.cluster, None, self.reporter, is_shared=is_shared, last_load=self.last_load
        )

    @property
    def messages(self) -> Rate:
        level = self.gates.level
        assert level is not None
        return level.messages


@pytest.mark.parametrize(
    ("rate", "is_shared", "seconds"),
    [(0.0, False, 1.0), (500.0, False, 1.0), (0.0, True, FIRST_LOOK_S), (500.0, True, LOOK_MAX_S)],
)
def test_others_are_watched_for_a_minute_where_they_load_the_brokers(
    rate: float, is_shared: bool, seconds: float
) -> None:
    bed = Bed(rate, is_shared)
    assert bed.took_s == pytest.approx(seconds, abs=3.0)
    assert bed.messages.mean == pytest.approx(rate * len(BROKERS))
    assert bed.messages.deviation == pytest.approx(0.0, abs=1e-6)


def test_a_later_run_in_the_same_process_knows_the_level() -> None:
    bed = Bed(500.0)
    again = bed.new_gates(is_shared=True)
    began_s = bed.cluster.now_s
    again.take_baseline()
    assert bed.cluster.now_s - began_s < 5.0
    assert again.level is not None and again.level.messages.mean == pytest.approx(1_000.0)


@pytest.mark.parametrize(("before", "after"), [(0.0, 3_000.0), (3_000.0, 0.0), (500.0, 3_000.0)])
def test_a_change_for_good_costs_one_trial(before: float, after: float) -> None:
    bed = Bed(before)
    bed.cluster.rate = after

    def share() -> float:
        seen = ClientTraffic(10.0, 10 * (2 * after + 100), 10e3 * (2 * after + 100))
        load = OtherLoad.of(seen, OwnTraffic(1_000.0, 1e6), bed.gates.level)
        return load.rise.share if after > before else -load.fall.share

    assert share() > 0.05
    before_s = bed.cluster.now_s
    bed.gates.renew_level()
    assert bed.cluster.now_s - before_s == pytest.approx(RENEWAL_S, abs=1.1)
    texts = [each.text for each in bed.reporter.events if isinstance(each, PhaseStarted)]
    assert texts[-1] == "the load of other clients changed: measuring it again"
    assert share() == 0.0
    bed.cluster.rate = before
    bed.cluster.pause(60.0)
    seen = ClientTraffic(10.0, 20 * before + 1_000, 20e3 * before + 1e6)
    back = OtherLoad.of(seen, OwnTraffic(1_000.0, 1e6), bed.gates.level)
    assert back.rise.share == back.fall.share == 0.0, "the load before it is still usual"


def test_the_idle_time_beside_others_is_measured_anew_with_their_load() -> None:
    bed = Bed(500.0)
    assert bed.gates.idle_at_rest == pytest.approx(1.0)
    bed.cluster.rate = 1_000.0
    bed.cluster.idle = 0.6
    bed.gates.renew_level()
    assert bed.gates.idle_at_rest == pytest.approx(0.6, abs=0.01)
    level = bed.gates.level
    assert level is not None and level.handler_idle == bed.gates.idle_at_rest
    alone = Bed(0.0, is_shared=False)
    alone.cluster.idle = 0.6
    alone.gates.renew_level()
    assert alone.gates.idle_at_rest == 1.0
    assert alone.gates.level is not None and alone.gates.level.handler_idle is None
    assert alone.gates.pass_all(TOPIC) != ()


def test_others_who_load_the_brokers_more_from_a_moment_on_refuse_no_trial() -> None:
    bed = Bed(500.0)
    bed.cluster.rate = 2_000.0
    bed.cluster.idle = 0.6
    bed.cluster.pause(5.0)
    before_s = bed.cluster.now_s
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.cluster.now_s - before_s < OTHERS_PATIENCE_S + RENEWAL_S + 5.0
    bed.cluster.pause(5.0)
    before_s = bed.cluster.now_s
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.cluster.now_s - before_s < 5.0


@pytest.mark.parametrize(
    ("rate", "waiting", "idle"), [(2_000.0, 3.0, 0.3), (2_000.0, 0.0, 0.01), (500.0, 0.0, 0.6)]
)
def test_requests_that_brokers_work_off_are_no_load_of_others(
    rate: float, waiting: float, idle: float
) -> None:
    bed = Bed(500.0)
    bed.cluster.rate, bed.cluster.waiting, bed.cluster.idle = rate, waiting, idle
    bed.cluster.pause(5.0)
    before_s = bed.cluster.now_s
    reason = bed.gates.pass_all(TOPIC)[0]
    assert reason.indicator == "not_at_rest"
    if rate == 500.0:
        assert "request handlers idle 0.60" in reason.text
        assert bed.cluster.now_s - before_s == pytest.approx(DEADLINE_S, abs=3.0)
        return
    bed.gates.renew_level()
    assert bed.gates.idle_at_rest == pytest.approx(1.0)


@pytest.mark.parametrize("is_under_way", [True, False])
def test_followers_of_a_reassignment_may_lag(is_under_way: bool) -> None:
    bed = Bed(500.0)
    asked: list[float] = []

    def reassigns() -> bool:
        asked.append(bed.cluster.now_s)
        return is_under_way

    bed.gates.reassigns = reassigns
    bed.cluster.pause(5.0)
    assert bed.gates.pass_all(TOPIC) == () and not asked
    bed.cluster.lag = 9_000.0
    bed.cluster.pause(5.0)
    reasons = bed.gates.pass_all(TOPIC)
    if not is_under_way:
        assert "broker 1: 9000 records behind" in reasons[0].text
        return
    assert reasons == ()
    bed.cluster.pause(5.0)
    before_s = bed.cluster.now_s
    assert bed.gates.pass_all(TOPIC) == ()
    assert bed.cluster.now_s - before_s < 5.0
    is_under_way = False
    bed.cluster.pause(5.0)
    assert "records behind" in bed.gates.pass_all(TOPIC)[0].text


OFF = GuardLimits(others_errors_per_s_max=None, controller_queue_ms_max=None)


@pytest.mark.parametrize(
    ("rate", "is_shared", "most", "is_stated"),
    [
        (24.0, True, 0.5, True),
        (24.0, True, None, False),
        (24.0, False, 0.5, False),
        (1.0, True, 0.5, False),
        (60.0, True, 0.5, False),
    ],
)
def test_a_run_states_that_others_write_too_little_for_the_guard(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, rate: float, is_shared: bool,
    most: float | None, is_stated: bool,
) -> None:  # fmt: skip
    level = Level.of([ClientTraffic(1.0, rate, 16_000 * rate)])
    monkeypatch.setattr(Gates, "take_baseline", lambda _: None)
    monkeypatch.setattr(Gates, "level", level)
    monkeypatch.setattr(Gates, "idle_at_rest", 0.9)
    admin = SimpleNamespace(adding_replicas=lambda _=None: {("orders", 0): {2}})
    history, reporter = TrialHistory(), RecordingReporter()
    context = run_context(
        source=Cluster(), history=history, reporter=reporter, environment={},
        cluster=SimpleNamespace(last_load=LastLoad(), admin=admin),
        config=SimpleNamespace(
            cluster=SimpleNamespace(is_exclusive=not is_shared),
            workload=SimpleNamespace(parts=()),
        ),
        guards=SimpleNamespace(limits=OFF.model_copy(update={"others_fall_max": most})),
    )  # fmt: skip
    gates = gates_module.open_gates(context, 60.0)
    stated = [each.text for each in reporter.events if isinstance(each, PhaseStarted)][1:]
    assert len(stated) == is_stated
    if is_stated:
        assert stated[0] == snapshot
    assert not is_shared or (gates.reassigns() and history.warm_up.idle_at_rest == 0.9)


def test_bursts_are_a_load_of_others_that_an_answer_states() -> None:
    looks = [ClientTraffic(1.0, 0.0, 0.0), *[ClientTraffic(1.0, 20.0, 384_000.0)] * 2]
    looks += [ClientTraffic(1.0, 0.0, 0.0)] * 7
    level = Level.of(looks)
    assert level is not None and level.written.mean < 100_000 and level.is_notable
    beside_bursts = OtherLoad.of(
        ClientTraffic(10.0, 20_040.0, 20.768e6), OwnTraffic(20_000.0, 20e6), level
    )
    assert traffic_beside([beside_bursts], [2e6]) == (
        "other clients' load during the trials: 0.08 MB/s (± 0.15 from second to second) written; "
        "this load may differ at other times; the brokers received up to 2.1 MB/s from all clients"
    )
    steady = Level.of([ClientTraffic(10.0, 40.0, 768_000.0)])
    assert steady is not None and not steady.is_notable


def test_the_answer_states_what_others_did_beside_it() -> None:
    loads = [
        replace(beside(95_000.0, 95e6), read_bytes_per_s=0.0),
        replace(beside(120_000.0, 120e6), read_bytes_per_s=3e6),
    ]
    assert traffic_beside(loads, [40e6, 20e6]) == (
        "other clients' load during the trials: 95.0 to 120.0 MB/s written and 0.0 to 3.0 MB/s "
        "read; this load may differ at other times; the brokers received up to 140.0 MB/s from all "
        "clients"
    )
    hidden = [replace(each, bytes_per_s=None, read_bytes_per_s=None) for each in loads]
    assert (traffic_beside(hidden, [0.0, 0.0]) or "").startswith(
        "other clients' load during the trials: 95,000 to 120,000 messages/s written; this load"
    )
    assert traffic_beside([OURS], [10e6]) is None and traffic_beside([], []) is None
