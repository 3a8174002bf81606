"""The verdict on the evidence of a trial, with its reasons and the numbers behind them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.judging.indicators import INDICATORS, Indicator
from metrics.judging.verdict import judge_all
from metrics.trial.client import BrokerAccount, ClientWindow, ClockChange, ClockOffset, HostClock
from metrics.trial.consumption import GroupCounts, GroupWindow
from metrics.trial.evidence import ClusterFacts, Evidence, Reason
from metrics.units import format_beside
from metrics.windows.broker import BrokerWindow, RequestWindow
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import START_S, broker, client, evidence, goal, judged, rules, with_one

S, O, I = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID  # noqa: E741
Given = dict[str, Any]


def seen(**changes: Any) -> Given:
    return {"seen": client(**changes)}


def one(**changes: Any) -> Given:
    """Changes of the second of three brokers."""
    return {"brokers": with_one(**changes)}


def limits(**changes: Any) -> Given:
    return {"thresholds": goal(**changes)}


def facts(**changes: Any) -> Given:
    return {"cluster": ClusterFacts(**changes)}


def brokers(*windows: BrokerWindow) -> Given:
    return {"brokers": windows}


def groups(*unread: int) -> Given:
    """A window of 10 s and 10,000 records, with the number of unread records of each group."""
    counts = [GroupCounts(number, records=10_000 - n) for number, n in enumerate(unread)]
    return seen(groups=tuple(map(GroupWindow, counts)))


def produce(**times: float) -> Given:
    """Changes of one broker's produce requests."""
    return one(produce=replace(broker().produce, **times))


def clock(offset_s: float, error_s: float) -> Given:
    near = HostClock("near", ClockOffset(0.001, 0.001))
    return seen(clocks=(near, HostClock("far", ClockOffset(offset_s, error_s))))


def clock_change(gained_s: float, error_s: float) -> Given:
    near = ClockChange("near", 0.001, 0.001)
    return seen(clock_changes=(near, ClockChange("far", gained_s, error_s)))


def group_throttled(reported_ms: int, brokers_ms: float | None) -> Given:
    """A throttle time that consumers report, beside the mean of one broker."""
    group = GroupWindow(GroupCounts(3, records=10_000, throttle_ms=reported_ms))
    return seen(groups=(group,)) | one(fetch_consumer=RequestWindow(throttle_ms=brokers_ms))


def in_doubt(idle: float, error: float | None) -> Given:
    """A broker with a controller's part of unknown size in its handlers' idle time."""
    return brokers(broker(1, handler_idle=idle, handler_idle_error=error), broker(2))


LOST = BrokerAccount(requests=20, silent_s=1.0, waiting_connections=4, missing_records=900)
REACHED = BrokerAccount(requests=900, silent_s=0.2, waiting_connections=1, missing_records=60)


def silent(**accounts: BrokerAccount) -> Given:
    """A trial that lacks 960 of 10,000 records, by default as broker 2 answers nothing."""
    by_broker = {"b1": REACHED, "b2": LOST, "b3": BrokerAccount()} | accounts
    found = {int(name[1:]): account for name, account in by_broker.items()}
    return seen(acked_records=9_040, by_broker=found)


SHORT = seen(acked_records=9_000)
HALF = seen(acked_records=5_000)
BLIND = facts(is_blind=True)
UNREAD = broker(1, handler_idle=None, network_idle=None)
FULL_QUEUES = facts(queued_max_requests={1: 5_000.0, 2: 500.0, 3: 5_000.0})
SHARE = limits(request_queue_share_max=0.8)
QUEUE_OR_SHARE = limits(request_queue_share_max=0.8, request_queue_max=250.0)
LATENCIES = limits(latency_p99_ms_max=7.9, latency_p50_ms_max=2.0, latency_p999_ms_max=15.0)
RESPONSE = limits(produce_response_ms_max=20)
QUOTA = limits(throttled_is_overload=True, throttle_ms_max=5.0)
THROTTLED = one(produce=RequestWindow(per_s=100.0, throttle_ms=4.0))
MEAN_OF_2_MS = seen(throttle_ms=200, by_broker={1: BrokerAccount(requests=100)})
GUARD = Reason("guard", "the disk of broker 1 is full", 1.0, 0.0)
FENCED = BrokerWindow(100, 1.0, 2.0, 1.0, 10, 0, 0.5, fenced_brokers_max=1.0)
KILLED = broker(3, samples_missed=8, start_s=None, handler_idle=None)
KILLED_3 = facts(killed=3)
SECOND_LACKS = brokers(broker(1), broker(2, samples_missed=8), KILLED)
EFFECTS = seen(
    retry_errors={"KafkaConnectionError": 40}, errors={"NotLeaderOrFollowerError": 2}
) | brokers(broker(1, fenced_brokers_max=1.0), broker(2, fenced_brokers_max=1.0), KILLED)

CALM = "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 achieved=1|0.99"


class Case(NamedTuple):
    """Arguments of `judged`, and the verdict that follows from them.

    Attributes:
        reasons: `rule/broker=value|threshold` of each reason.
        words: a part of their sentences.
    """

    given: Given
    verdict: Verdict
    reasons: str = CALM
    words: str = ""


CASES = {
    # --- indicators of brokers
    "calm": Case({}, S, CALM, "100.0% of the offered records"),
    "the least idle broker": Case(one(handler_idle=0.41), S,
        "request_handler_idle/2=0.41|0.2 isr/3=0|0.5 achieved=1|0.99",
        "request handlers idle 0.41 on the busiest broker 2; at least 0.20 is required"),
    "handlers at the limit": Case(one(handler_idle=0.20), S,
        "request_handler_idle/2=0.2|0.2 isr/3=0|0.5 achieved=1|0.99"),
    "busy handlers": Case(one(handler_idle=0.19), O, "request_handler_idle/2=0.19|0.2",
        "broker 2: request handlers idle 0.19"),
    "not 0.20 below 0.20": Case(one(handler_idle=0.1964), O, "request_handler_idle/2=0.1964|0.2",
        "broker 2: request handlers idle 0.196, below 0.20"),
    "ISR changes at the limit": Case(one(isr_changed_share=0.5), S,
        "request_handler_idle/1=0.8|0.2 isr/2=0.5|0.5 achieved=1|0.99"),
    "ISR changes": Case(one(isr_changed_share=0.51), O, "isr/2=0.51|0.5",
        "ISR changes or under-replicated"),
    "ISR changes in numbers": Case(one(isr_changed_share=0.51, isr_shrinks=3.0, isr_expands=2.0), O,
        "isr/2=0.51|0.5", "3 shrinks, 2 expands, up to 0 partitions"),
    "ISR changes of one broker after the other": Case(
        brokers(broker(isr_changed_share=None)) | {"any_isr_changed_share": 0.9}, O, "isr=0.9|0.5"),
    "brokers before the shortfall, worst first": Case(
        HALF | brokers(broker(1, handler_idle=0.15), broker(2, handler_idle=0.05), broker(3)), O,
        "request_handler_idle/2=0.05|0.2 request_handler_idle/1=0.15|0.2 achieved=0.5|0.99"),
    "no rule of queues and threads": Case(
        one(network_idle=0.29, request_queue_max=401.0) | FULL_QUEUES, S),
    "busy network threads": Case(one(network_idle=0.29) | limits(network_idle_min=0.3), O,
        "network_idle/2=0.29|0.3"),
    "a long queue": Case(one(request_queue_max=401.0) | limits(request_queue_max=400), O,
        "request_queue/2=401|400"),
    "a queue at its share": Case(one(request_queue_max=400.0) | SHARE | FULL_QUEUES, S),
    "a queue beyond its share": Case(one(request_queue_max=400.1) | SHARE | FULL_QUEUES, O,
        "request_queue/2=400.1|400", "(size of the queue: 500)"),
    "a queue by the lower limit": Case(one(request_queue_max=300.0) | QUEUE_OR_SHARE | FULL_QUEUES,
        O, "request_queue/2=300|250", "(size of the queue: 500)"),
    "slow answers": Case(produce(total_ms=30.0) | RESPONSE, O, "produce_response_time/2=30|20",
        "broker 2: mean response time of produce requests 30.0 ms, above 20.0 ms"),
    "answers at the limit": Case(produce(total_ms=20.0) | RESPONSE, S),
    "not 20 above 20": Case(produce(total_ms=20.04) | RESPONSE, O,
        "produce_response_time/2=20.04|20", "20.04 ms, above 20.0 ms"),
    "no requests to answer": Case(one(produce=RequestWindow(per_s=0.0)) | RESPONSE, S),
    "slow answers without a limit": Case(produce(total_ms=30.0), S),
    # --- indicators of clients
    "records at the limit": Case(seen(acked_records=9_900), S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 achieved=0.99|0.99"),
    "a shortfall": Case(seen(acked_records=9_899), O, "achieved=0.9899|0.99",
        "98.99% of the offered records were acknowledged in the window, below 99.0% (9899 of"),
    "latency without an objective": Case(seen(latency_p999_ms=15.1), S),
    "latency": Case(seen(latency_p999_ms=15.1) | LATENCIES, O,
        "latency_p99=8|7.9 latency_p999=15.1|15"),
    "latency of one quantile": Case(LATENCIES, O, "latency_p99=8|7.9"),
    "a lag that grows to the limit": Case(
        groups(-5_000, 100) | limits(consumer_lag_growth_max=0.01), S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 consumer_lag=0.01|0.01 achieved=1|0.99",
        "the lag of consumer group 1 grew by 1.0% of the offered"),
    "a lag that grows": Case(groups(-5_000, 101) | limits(consumer_lag_growth_max=0.01), O,
        "consumer_lag=0.0101|0.01", "consumer group 1 fell behind by 10 records/s, 1.0%"),
    "a lag without a limit": Case(groups(-5_000, 101) | limits(consumer_lag_growth_max=None), S),
    "a lag that grows by default": Case(groups(1_000), O, "consumer_lag=0.1|0.05"),
    "a lag below the default": Case(groups(130), S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 consumer_lag=0.013|0.05 achieved=1|0.99"),
    "the first group lags most": Case(groups(300, 100), S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 consumer_lag=0.03|0.05 achieved=1|0.99",
        "consumer group 0 grew by 3.0%"),
    "the second group lags most": Case(groups(100, 300), S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 consumer_lag=0.03|0.05 achieved=1|0.99",
        "consumer group 1 grew by 3.0%"),
    # --- clusters without metrics
    "blind": Case(brokers(UNREAD) | limits(network_idle_min=0.3) | BLIND, S,
        "isr/1=0|0.5 achieved=1|0.99"),
    "blind, without response times": Case(
        one(produce=RequestWindow(), handler_idle=None) | BLIND
        | limits(produce_response_ms_max=20, request_queue_max=5),
        S, "isr/3=0|0.5 achieved=1|0.99"),
    "blind, with ISR changes": Case(brokers(UNREAD, replace(UNREAD, isr_changed_share=0.9)) | BLIND,
        O, "isr/1=0.9|0.5"),
    "metrics are missing": Case(brokers(UNREAD), I, "metrics_incomplete/1=0|0.25"),
    # --- metrics
    "missed samples": Case(one(samples_missed=3), I, "metrics_incomplete/2=0.3|0.25"),
    "an early last sample": Case(one(edge_gap_s=2.1), I, "metrics_incomplete/2=0|0.25"),
    "no idle time": Case(one(handler_idle=None), I, "metrics_incomplete/2=0|0.25"),
    "no sample": Case(one(start_s=None, handler_idle=None, samples_missed=10), I,
        "metrics_incomplete/2=1|0.25"),
    "one missed sample": Case(one(samples_missed=1), S),
    "a last sample that is early enough": Case(one(edge_gap_s=2.0), S),
    "no response times": Case(one(produce=RequestWindow()) | RESPONSE, I,
        "metrics_incomplete/2=0|0.25", "the response time of produce requests (produce_total_ms)"),
    "no network threads": Case(one(network_idle=None) | limits(network_idle_min=0.3), I,
        "metrics_incomplete/2=0|0.25", "(network_wait_ns)"),
    "a contradiction": Case(one(contradiction="broker 2 restarted"), I,
        "metrics_contradictory/2=1|0", "broker 2 restarted"),
    "no brokers": Case(brokers(), I, "metrics_incomplete=0|1"),
    "a window too short for the ISR": Case(facts(isr_window_s=10.1), I, "window_too_short=10|10.1"),
    "a window as long as the ISR needs": Case(facts(isr_window_s=10.0), S),
    "an overload in a short window": Case(one(handler_idle=0.1) | facts(isr_window_s=10.1), O,
        "request_handler_idle/2=0.1|0.2"),
    # --- the cluster
    "an error of a move": Case(seen(errors={"NotLeaderForPartitionError": 3}), I,
        "leaders_moved=3|0"),
    "moved leaders": Case({"moved_leaders": {2: 3}}, I, "leaders_moved/2=3|0"),
    "moved partitions of others": Case(one(leader_partitions_min=9.0) | {"moved_leaders": {}}, S),
    "a fenced broker": Case({"controllers": (FENCED,)}, I, "broker_fenced/100=1|0"),
    "no fenced broker": Case({"controllers": (replace(FENCED, fenced_brokers_max=0.0),)}, S),
    "a sequence that a broker does not know": Case(
        seen(retry_errors={"OutOfOrderSequenceNumberError": 6}), I, "unexpected_errors=6|0"),
    "batches behind those that too few replicas took": Case(
        seen(errors={"OutOfOrderSequenceNumberError": 5_000}, acked_records=5_000,
             retry_errors={"NotEnoughReplicasError": 9}), O, "achieved=0.5|0.99"),
    "an unexpected error": Case(seen(errors={"ConnectionClosed": 3}), I, "unexpected_errors=3|0"),
    "an election": Case(one(controller_elections=1.0), I, "controller_changed=1|0"),
    "an election that all nodes report": Case(
        one(controller_elections=2.0) | {"controllers": (broker(100, controller_elections=3.0),)},
        I, "controller_changed=3|0", "node 100 reports rose by 3"),
    "a standstill": Case(one(standstill_s=0.51), I, "stood_still/2=0.51|0.5"),
    "a longer standstill that is allowed": Case(
        one(standstill_s=1.05) | limits(standstill_s_max=1.1), S),
    "a longer standstill": Case(one(standstill_s=1.05) | limits(standstill_s_max=1.0), I,
        "stood_still/2=1.05|1", "broker 2 paused for 1.1 s or more"),
    "timeouts": Case(seen(errors={"RequestTimedOutError": 5_000}), S),
    "no answers": Case(seen(errors={"Unacknowledged": 5_000}), S),
    "timeouts with a shortfall": Case(
        seen(errors={"RequestTimedOutError": 5_000}, acked_records=5_000), O, "achieved=0.5|0.99"),
    "no answers with a shortfall": Case(seen(errors={"Unacknowledged": 5_000}, acked_records=5_000),
        O, "achieved=0.5|0.99"),
    "effects of a lost broker": Case(EFFECTS, I,
        "metrics_incomplete/3=0.8|0.25 leaders_moved=2|0 unexpected_errors=40|0 "
        "broker_fenced/1=1|0 broker_fenced/2=1|0"),
    "effects of a killed broker": Case(EFFECTS | KILLED_3, S),
    "missed samples beside a killed broker": Case(SECOND_LACKS | KILLED_3, I,
        "metrics_incomplete/2=0.8|0.25"),
    "a lost record beside a killed broker": Case({"growth": {0: 5_999, 1: 6_000}} | KILLED_3, S),
    "an unknown record beside a killed broker": Case(
        {"growth": {0: 6_001, 1: 6_000}} | KILLED_3, I, "accounting_mismatch=1|0"),
    "an election beside a killed broker": Case(one(controller_elections=1.0) | KILLED_3, S),
    # --- the controller's part of the handlers
    "less idle, in doubt": Case(in_doubt(0.21, 0.02), I, "controller_in_doubt/1=0.21|0.2",
        "0.190 to 0.230"),
    "too busy, in doubt": Case(in_doubt(0.19, 0.02), I, "controller_in_doubt/1=0.19|0.2",
        "0.170 to 0.210"),
    "a process of its own": Case(in_doubt(0.21, 0.02), I, "controller_in_doubt/1=0.21|0.2",
        "in a separate process"),
    "idle without a doubt": Case(in_doubt(0.23, 0.02), S,
        "request_handler_idle/1=0.23|0.2 isr/2=0|0.5 achieved=1|0.99"),
    "busy without a doubt": Case(in_doubt(0.17, 0.02), O, "request_handler_idle/1=0.17|0.2"),
    "a controller of its own": Case(in_doubt(0.21, None), S,
        "request_handler_idle/1=0.21|0.2 isr/2=0|0.5 achieved=1|0.99"),
    "a doubtful broker beside an overloaded one": Case(
        brokers(*in_doubt(0.21, 0.02)["brokers"], broker(3, handler_idle=0.1)), O,
        "request_handler_idle/3=0.1|0.2"),
    # --- brokers out of reach
    "a broker that never got records": Case(silent(), I, "unreachable/2=1|1",
        "executors do not reach broker 2: it answered nothing for 1.0 s while 4"),
    "and what it lacks": Case(silent(), I, "unreachable/2=1|1",
        "900 records that were due for it by the window's end are missing"),
    "two brokers that never got records": Case(silent(b1=LOST), I,
        "unreachable/1=1|1 unreachable/2=1|1"),
    "a silent broker that is busy": Case(silent() | one(handler_idle=0.19), O,
        "request_handler_idle/2=0.19|0.2 achieved=0.904|0.99"),
    "a silent broker that waits for followers": Case(silent() | one(produce_delayed_max=4.0), O,
        "achieved=0.904|0.99"),
    "a silent broker that may wait": Case(silent() | one(samples_missed=1), O,
        "achieved=0.904|0.99"),
    "a silent broker between samples": Case(silent() | one(interval_s=1.1), O,
        "achieved=0.904|0.99"),
    "a slow broker": Case(silent(b2=replace(LOST, silent_s=0.99)), O, "achieved=0.904|0.99"),
    "others lack records, too": Case(silent(b2=replace(LOST, missing_records=859)), O,
        "achieved=0.904|0.99"),
    "all brokers are silent": Case(silent(b1=LOST, b3=LOST), O, "achieved=0.904|0.99"),
    "silence without a shortfall": Case(
        seen(by_broker={1: REACHED, 2: replace(LOST, missing_records=0)}), S),
    # --- generators
    "a failed task": Case(seen(task_errors=("task 0 on a: out of memory",)), I, "task_failed=1|0",
        "task 0 on a: out of memory"),
    "a window that never began": Case(
        seen(end_s=START_S, task_errors=("task 0 on a: out of memory",)) | {"planned_s": 20.0}, I,
        "task_failed=1|0"),
    "a window that ended early": Case({"planned_s": 20.0}, S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 achieved=1|0.99 ended_early=10|20"),
    "a window as planned": Case({"planned_s": 10.0}, S),
    "a load that ended": Case(one(samples_missed=9) | {"refusals": (GUARD,)}, I,
        "guard=1|0 metrics_incomplete/2=0.9|0.25", GUARD.text),
    "half of the shortfall is unsent": Case(seen(acked_records=9_000, unsent_own_records=500), I,
        "generator_limited=0.5|0.5"),
    "less than half is unsent": Case(seen(acked_records=9_000, unsent_own_records=499), O,
        "achieved=0.9|0.99"),
    "more is unsent than missing": Case(seen(acked_records=9_000, unsent_own_records=3_500), I,
        "generator_limited=1|0.5", "1000 of 1000 missing records were due and unsent"),
    "a busy loop": Case(seen(acked_records=9_000, loop_busy=0.95), I,
        "generator_limited=0.95|0.95"),
    "a less busy loop": Case(seen(acked_records=9_000, loop_busy=0.94), O, "achieved=0.9|0.99"),
    "a busy loop without a shortfall": Case(seen(loop_busy=0.99, unsent_own_records=50), S),
    "no load": Case(seen(offered_records=0, acked_records=0, latency_p99_ms=math.nan), I,
        "generator_limited=0|1"),
    # --- clocks
    "a clock behind": Case(clock(-0.27, 0.01), I, "clocks_apart=0.26|0.25"),
    "a clock ahead": Case(clock(0.27, 0.01), I, "clocks_apart=0.26|0.25",
        "executor far was 0.270 s ahead of the driver's (± 0.010 s)"),
    "a clock that may be within": Case(clock(0.27, 0.03), S),
    "a clock at the limit": Case(clock(0.25, 0.0), S),
    "a clock that gained": Case(clock_change(0.11, 0.005), I, "clock_changed=0.105|0.1",
        "executor far gained 0.110 s on the driver's (± 0.005 s)"),
    "a clock that lost": Case(clock_change(-0.11, 0.005), I, "clock_changed=0.105|0.1",
        "executor far lost 0.110 s on the driver's (± 0.005 s)"),
    "a clock that may have gained less": Case(clock_change(0.11, 0.02), S),
    "a clock that gained less": Case(clock_change(0.09, 0.0), S),
    "a clock that was set": Case(
        seen(clocks=(HostClock("far", ClockOffset(1.3, 0.01)),),
             clock_changes=(ClockChange("far", 1.3, 0.01),)),
        I, "clocks_apart=1.29|0.25"),
    # --- quotas
    "throttled producers": Case(seen(throttle_ms=12), I, "throttled=12|0"),
    "a mean of 2 ms where none is allowed": Case(MEAN_OF_2_MS, I, "throttled=200|0"),
    "a mean of 2 ms": Case(
        MEAN_OF_2_MS | limits(throttle_ms_max=1.9),
        I, "throttled=200|1.9"),
    "a mean of 2 ms that is allowed": Case(
        MEAN_OF_2_MS | limits(throttle_ms_max=2.0),
        S),
    "a library reports no mean": Case(seen(throttle_ms=200) | limits(throttle_ms_max=2.0), I,
        "throttled=200|2"),
    "throttled consumers of others": Case(group_throttled(0, 4.0), S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 consumer_lag=0|0.05 achieved=1|0.99"),
    "throttled consumers": Case(group_throttled(9, 4.0), I, "throttled=9|0",
        "consumer group 3 was throttled"),
    "throttled consumers that brokers do not show": Case(group_throttled(9, None), I,
        "throttled=9|0"),
    "consumers throttled less than allowed": Case(
        group_throttled(9, 4.0) | limits(throttle_ms_max=5.0), S,
        "request_handler_idle/1=0.8|0.2 isr/3=0|0.5 consumer_lag=0|0.05 achieved=1|0.99"),
    "consumers throttled more than allowed": Case(
        group_throttled(9, 4.0) | limits(throttle_ms_max=3.0), I, "throttled=9|3"),
    "consumers throttled for an unknown mean": Case(
        group_throttled(9, None) | limits(throttle_ms_max=5.0), I, "throttled=9|5"),
    "throttled by one broker": Case(one(produce=RequestWindow(throttle_ms=4.0)), I,
        "throttled/2=4|0"),
    "a throttle time within rounding": Case(produce(throttle_ms=1e-9), S),
    "a throttle time of less than 1 ms in all": Case(produce(throttle_ms=0.0004), S),
    "a throttle time of 1 ms in all": Case(produce(throttle_ms=0.001), I, "throttled/2=0.001|0"),
    "a search for the quota": Case(THROTTLED | QUOTA, O, "throttled/2=4|0"),
    "a search for the quota, below it": Case(QUOTA, S),
    "a failed task in a search for the quota": Case(
        seen(task_errors=("task 1: lost",)) | THROTTLED | QUOTA, I, "task_failed=1|0"),
    # --- the log
    "a log with all records": Case({"growth": {0: 6_000, 1: 6_000}}, S),
    "timed out and written all the same": Case(
        seen(errors={"RequestTimedOutError": 4}) | {"growth": {0: 6_000, 1: 6_004}}, S),
    "more records than sent": Case(
        seen(errors={"RequestTimedOutError": 4}) | {"growth": {0: 6_000, 1: 6_005}}, I,
        "accounting_mismatch=1|0", "after 12000 acknowledged, 4 failed"),
    "a lost record": Case(
        seen(errors={"RequestTimedOutError": 5}) | {"growth": {0: 5_999, 1: 6_001}}, I,
        "accounting_mismatch=1|0", "1 acknowledged records are missing"),
    "a partition without records": Case({"growth": {0: 6_000}}, I, "accounting_mismatch=6000|0",
        "6000 acknowledged records are missing"),
}  # fmt: skip


def shown(reason: Reason) -> str:
    broker_id = "" if reason.broker_id is None else f"/{reason.broker_id}"
    return f"{reason.indicator}{broker_id}={reason.value:.4g}|{reason.threshold:.4g}"


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_has_reasons_with_their_numbers(name: str) -> None:
    case = CASES[name]
    judgement = judged(**case.given)
    assert judgement.verdict is case.verdict
    assert " ".join(map(shown, judgement.reasons)) == case.reasons
    assert case.words in "\n".join(each.text for each in judgement.reasons)
    assert (judgement.limited_by is not None) is (case.verdict is O)
    throttled = {each.resource for each in judgement.reasons if each.indicator == "throttled"}
    assert throttled <= {Resource.QUOTA}


OVERLOAD_WINS = {
    "no brokers", "a window too short for the ISR", "less idle, in doubt", "too busy, in doubt",
    "a process of its own",
}  # fmt: skip
"""INVALID trials whose reason does not hold for an overload."""


def test_invalid_comes_before_overloaded() -> None:
    over = broker(4, handler_idle=0.01, isr_changed_share=1.0)
    for name, case in CASES.items():
        if case.verdict is I:
            windows = (*case.given.get("brokers", with_one()), over)
            verdict = judged(**case.given | {"brokers": windows}).verdict
            assert verdict is (O if name in OVERLOAD_WINS else I), name


def test_a_shortfall_or_a_quota_that_clients_see_names_its_resource() -> None:
    assert judged(client(acked_records=9_899)).limited_by is Resource.UNKNOWN
    blind = judged(**CASES["blind, with ISR changes"].given)
    assert blind.attribution == "unknown: the cluster shows no broker metrics"
    quota = judged(**THROTTLED | QUOTA)
    assert quota.limited_by is Resource.QUOTA
    assert "4.0 ms on average" in quota.attribution
    assert "its other resources" in quota.attribution
    for cluster in (BLIND, {}):
        seen_by_clients = judged(**seen(throttle_ms=70) | QUOTA | cluster)
        assert (seen_by_clients.verdict, seen_by_clients.limited_by) == (O, Resource.QUOTA)
        assert "producers were throttled for 70 ms" in seen_by_clients.attribution
    (rule,) = (each for each in INDICATORS if each.name == "throttled")
    assert type(rule).early is Indicator.early, "a load may still be throttled: no early end"


@pytest.mark.parametrize("changes", [{"samples_missed": 8}, {"edge_gap_s": 9.0}, {"start_s": None}])
def test_an_overload_that_clients_see_needs_no_samples_where_the_cluster_shows_no_metrics(
    changes: dict[str, float | None],
) -> None:
    """Overloaded brokers delay the answers of the Admin API, too, which are the only samples."""
    lacking = one(handler_idle=None, **changes)
    late = seen(latency_p99_ms=400.0)
    overloaded = judged(**HALF | lacking | BLIND)
    assert (overloaded.verdict, rules(overloaded)) == (O, {"achieved"})
    assert judged(**late | lacking | limits(latency_p99_ms_max=300.0) | BLIND).verdict is O
    for rest in (BLIND, late | BLIND, HALF):
        judgement = judged(**rest | lacking)
        assert judgement.verdict is I
        assert "metrics_incomplete" in rules(judgement)


def test_several_goals_judge_one_trial() -> None:
    goals = {
        "tolerant": goal(request_handler_idle_min=0.1),
        "strict": goal(request_handler_idle_min=0.4),
        "fast": goal(latency_p99_ms_max=5.0),
        "current": goal(consumer_lag_growth_max=0.0),
    }
    found = judge_all(evidence(groups(500)["seen"], with_one(handler_idle=0.3)), goals)
    over = {"strict": "request_handler_idle", "fast": "latency_p99", "current": "consumer_lag"}
    assert {name: rules(each) for name, each in found.items() if each.verdict is O} == {
        name: {rule} for name, rule in over.items()
    }
    assert found["tolerant"].verdict is S
    for case in ("an error of a move", "a partition without records"):
        both = judge_all(evidence(**CASES[case].given), goals)
        assert {each.verdict for each in both.values()} == {I}


def test_a_trial_that_was_not_made_has_only_that_reason() -> None:
    refusal = Reason("not_at_rest", "broker 2: request handlers idle 0.10", 1.0, 0.0)
    not_made = Evidence(ClientWindow(START_S, START_S), refusals=(refusal,))
    judgement = judge_all(not_made, {"a": goal()})["a"]
    assert (judgement.verdict, judgement.reasons) == (I, (refusal,))


def test_a_lag_may_grow_by_no_more_records_in_a_long_window_than_in_one_of_40_s() -> None:
    """4.9 % of 240 s are 12 s behind: an hour of it makes three minutes."""
    found = evidence(groups(490)["seen"])
    (indicator,) = [each for each in INDICATORS if each.name == "consumer_lag"]
    for duration_s, is_over in ((10.0, False), (40.0, False), (240.0, True)):
        longer = replace(found.client, end_s=START_S + duration_s)
        reasons = indicator.reasons(replace(found, client=longer), goal().indicators)
        assert bool(reasons) == is_over
    assert "4.9% of the offered rate, above 0.8%" in reasons[0].text


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (seen(acked_records=9_900) | one(handler_idle=0.2, isr_changed_share=0.25),
         {"request_handler_idle": 1.0, "isr": 0.5, "achieved": 1.0}),
        (brokers(broker(handler_idle=None, isr_changed_share=None))
         | limits(achieved_min=1.0, isr_changed_share_max=0.0), {}),
        (seen(acked_records=10_100) | brokers(broker(handler_idle=1.02)),
         {"request_handler_idle": 0.0, "isr": 0.0, "achieved": 0.0}),
        (brokers(UNREAD) | BLIND, {"isr": 0.0, "achieved": 0.0}),
        (produce(total_ms=30.0), {"request_handler_idle": 0.25, "isr": 0.0, "achieved": 0.0}),
        (produce(total_ms=30.0) | limits(produce_response_ms_max=60),
         {"request_handler_idle": 0.25, "isr": 0.0, "achieved": 0.0,
          "produce_response_time": 0.5}),
    ],
    ids=["at the limit", "no evidence or limit", "beyond the best", "blind", "off", "on"],
)  # fmt: skip
def test_utilization_is_one_at_the_threshold(given: Given, used: dict[str, float]) -> None:
    assert judged(**given).utilization == pytest.approx(used)


def test_no_value_reads_as_the_limit_that_it_misses() -> None:
    values = ((0.1996, "0.1996"), (0.198, "0.198"), (0.05, "0.05"), (0.2, "0.20"))
    for value, text in (*values, (0.19999999, "0.20")):
        assert format_beside(value, 0.2) == text


shares = st.floats(0.0, 1.2)


@pytest.mark.computes
@given(
    st.lists(st.tuples(shares, st.floats(0, 1)), min_size=1, max_size=5),
    st.integers(0, 11_000),
    st.integers(0, 10_000),
    shares,
)
def test_a_verdict_always_has_reasons_and_agrees_with_utilization(
    readings: list[tuple[float, float]], acked: int, unsent: int, busy: float
) -> None:
    windows = [
        broker(i, handler_idle=idle, isr_changed_share=isr)
        for i, (idle, isr) in enumerate(readings)
    ]
    account = client(acked_records=acked, unsent_own_records=unsent, loop_busy=busy)
    judgement = judged(account, windows)
    assert judgement.reasons
    above = [name for name, used in judgement.utilization.items() if used > 1 + 1e-9]
    if judgement.verdict is S:
        assert not above
    if judgement.verdict is O:
        assert {r.indicator for r in judgement.reasons} >= set(above)
        assert judgement.limited_by is not None
        assert judgement.attribution
