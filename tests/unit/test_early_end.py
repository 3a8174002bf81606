"""When the driver begins and ends the window of a running trial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

from jobs.trials.early_end import EarlyEnd
from jobs.trials.running_load import NOTICE_S
from metrics.judging.thresholds import Thresholds
from metrics.sources.beans import HANDLER_IDLE_NS, Role
from metrics.sources.sample import BrokerSample
from metrics.trial.evidence import ClusterFacts
from search.early_stop import FEWEST, is_far_beyond
from tests.support.patterns import pattern
from tests.support.running_loads import START_S, SentChannel, running

LOAD = pattern(producers=10)
PHASES = replace(LOAD.phases, ramp_up_s=0.0, warmup_s=10.0, measure_s=45.0, sample_interval_s=1.0)
LAG_WINDOW_S = 45.0
"""The window of Kafka's default of 30 s for `replica.lag.time.max.ms`."""


LATER_S = 60.0
"""Time after which brokers may become busier [s]."""


class Running(SentChannel):
    """The channel of a load of which the brokers take the same share from its start on."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def report(self, load_s: float, warmup_s: float) -> None:
        """The task's reports until so many seconds of load."""
        taken = round(self._share * LOAD.records_per_s * load_s)
        self.receive(0, {"written": taken})
        into_s = load_s - self.phases_now(replace(PHASES, warmup_s=warmup_s)).warmup_s
        if into_s > 0:
            acked = round(self._share * LOAD.records_per_s * into_s)
            self.receive(0, {"at_s": into_s, "acked": acked})


@dataclass
class Trial:
    """A load on one broker, looked at twice a second until its end is set."""

    share: float = 0.5
    idle: float = 0.0
    overload_max_s: float = 10.0
    ramp_up_s: float = 0.0
    may_begin_early: bool = True
    rate_window_s: float | None = None
    warmup_s: float = PHASES.warmup_s
    interval_s: float = 1.0
    is_held: bool = False
    is_exclusive: bool = False
    measure_s: float = PHASES.measure_s
    idle_later: float | None = None
    ripple_s: float = 0.0
    kept_s: float = 0.0

    def run(self) -> tuple[float, list[dict[str, float]]]:
        """The seconds from the start of the load to its end, and the messages to the tasks."""
        channel = Running(self.share)
        samples: list[BrokerSample] = []
        node = SimpleNamespace(roles=[Role.BROKER])
        context = SimpleNamespace(
            source=SimpleNamespace(nodes={1: node}),
            thresholds={"default": Thresholds()},
            config=SimpleNamespace(
                cluster=SimpleNamespace(is_exclusive=self.is_exclusive),
                goal=SimpleNamespace(search=SimpleNamespace(overload_max_s=self.overload_max_s)),
            ),
        )
        phases = replace(
            PHASES,
            ramp_up_s=self.ramp_up_s,
            warmup_s=self.warmup_s,
            sample_interval_s=self.interval_s,
            measure_s=self.measure_s,
            early_end_error_rate=0.0 if self.is_held else PHASES.early_end_error_rate,
        )
        facts = ClusterFacts(isr_window_s=LAG_WINDOW_S, rate_window_s=self.rate_window_s)
        load = running(replace(LOAD, phases=phases), channel, context, samples, facts=facts)
        early_end = EarlyEnd(load, self.may_begin_early)
        for half_s in range(1, int(2 * (self.warmup_s + self.measure_s))):
            load_s = half_s / 2
            channel.report(load_s, self.warmup_s)
            if load_s % self.interval_s == 0:
                early_s = min(load_s, LATER_S)
                later = self.idle if self.idle_later is None else self.idle_later
                idle_ns = (self.idle * early_s + later * (load_s - early_s)) * 1e9
                idle_ns += 1e9 * self.ripple_s * (load_s // 2 % 2)  # one second in two is idler
                values = {HANDLER_IDLE_NS: idle_ns, "isr_shrinks": 0.0}
                samples.append(BrokerSample(1, START_S + load_s, values))
            if early_end.look(START_S + load_s) is None:
                break
        self.kept_s = early_end.kept_overloaded_s
        warmup_s = channel.phases_now(replace(PHASES, warmup_s=self.warmup_s)).warmup_s
        return warmup_s + next(iter(channel.ends_s), self.measure_s), channel.sent


def test_a_load_far_above_the_limit_ends_within_ten_seconds() -> None:
    for trial in (Trial(), Trial(share=1.0, idle=0.01)):  # short, or in fuller batches
        ends_s, sent = trial.run()
        assert ends_s <= 10.0
        assert [list(each) for each in sent] == [["begin_after_s"], ["end_after_s"]]
    assert Trial(share=1.0, idle=0.9).run() == (PHASES.load_s, []), "sustained"


HELD = Trial(share=1.0, idle=0.17, warmup_s=2.0, measure_s=105.0, is_held=True)


def test_a_load_that_is_held_on_brokers_of_others_ends_within_ten_seconds_of_overload() -> None:
    """Handlers idle for 0.17 are an overload of a goal of 0.20, however narrow."""
    by_far = replace(HELD, share=0.5, idle=0.0)
    late = replace(HELD, idle=0.5, idle_later=0.17)
    for case, least_s, most_s in ((HELD, 0, 10), (by_far, 0, 10), (late, LATER_S, LATER_S + 20)):
        ends_s, _ = case.run()
        assert case.kept_s == 10.0, "the evidence states it"
        assert least_s < ends_s <= most_s + 2.0 * NOTICE_S, case


def test_a_small_overload_of_others_ends_sooner_than_one_of_a_testbed() -> None:
    """The same readings, whose scatter leaves the whole window's verdict open for longer."""
    small = Trial(share=1.0, idle=0.165, ripple_s=0.05, measure_s=45.0)
    (others_s, _), (alone_s, _) = (
        each.run() for each in (small, replace(small, is_exclusive=True))
    )
    assert (others_s, alone_s) == (25.0, 35.0)


def test_any_other_load_that_is_held_has_its_full_length() -> None:
    for case in (
        replace(HELD, is_exclusive=True),
        replace(HELD, idle=0.25),
        replace(HELD, overload_max_s=1e4),
        replace(HELD, may_begin_early=False),  # a broker is killed
    ):
        ends_s, sent = case.run()
        assert (ends_s, sent, case.kept_s) == (case.warmup_s + case.measure_s, [], 0.0)


def test_an_overload_has_its_warm_up_and_no_window_for_the_isr() -> None:
    for trial in (
        Trial(share=0.9, idle=0.1),  # only just an overload
        Trial(overload_max_s=60.0),
        Trial(may_begin_early=False),
        Trial(ramp_up_s=9.0, idle=0.1),  # still grows
    ):
        ends_s, sent = trial.run()
        assert [list(each) for each in sent] == [["end_after_s"]]
        assert ends_s == PHASES.warmup_s + 8 + NOTICE_S or trial.ramp_up_s


def test_an_overload_by_far_needs_fewer_slices_where_samples_are_rare() -> None:
    """The warm-up is over before the overload shows."""
    for trial, least in (
        (Trial(warmup_s=1.5, interval_s=2.0), FEWEST),
        (Trial(warmup_s=1.5, interval_s=4.0, share=1.0, idle=0.01), FEWEST),
        (Trial(warmup_s=1.5, interval_s=2.0, share=0.9, idle=0.1), 8),  # only just an overload
    ):
        ends_s, sent = trial.run()
        assert [list(each) for each in sent] == [["end_after_s"]]
        assert least <= (ends_s - NOTICE_S - trial.warmup_s) / trial.interval_s < least + 1


def test_an_overload_lasts_until_its_window_has_a_whole_tick_of_each_rate() -> None:
    ends_s, sent = Trial(rate_window_s=11.0).run()
    (begin,) = [each["begin_after_s"] for each in sent if "begin_after_s" in each]
    assert ends_s == begin + 11.0


def test_a_load_falls_far_short() -> None:
    for load_s, share, is_far in ((3.9, 0.0, 0), (4.0, 0.79, 1), (4.0, 0.81, 0), (9.0, 0.5, 1)):
        moments = [at / 10 for at in range(1, int(load_s * 10) + 1)]
        points = [(at_s, round(share * 1_000.0 * at_s)) for at_s in moments]
        assert is_far_beyond(points, 1_000.0) == is_far
    slow_start = [(at / 2, 500 * max(0, at - 4)) for at in range(1, 13)]
    assert not is_far_beyond(slow_start, 1_000.0)
