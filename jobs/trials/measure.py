"""One trial on real brokers: prepare, load, sample, account, judge, keep."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import TrialStarted
from jobs.engine.pattern import TrialPlan
from jobs.trials.account import cut_short, finished_event, pattern_row
from jobs.trials.axes import Traffic, traffic_at
from jobs.trials.context import Bench
from jobs.trials.driver_line import TrialLine
from jobs.trials.early_end import EarlyEnd
from jobs.trials.gates import Gates
from jobs.trials.history import record_of
from jobs.trials.load import GeneratorError, StageFailedError, Target
from jobs.trials.point_topics import PointTopics
from jobs.trials.ticker import Ticker
from metrics.judging.group_rules import consumption_mismatch, lag_growth_per_s
from metrics.judging.verdict import Evidence, judge_all
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import brokers_of, controllers_of
from metrics.tables.schema import Trial
from metrics.trial.client import merge
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Reason
from metrics.windows.broker import broker_windows
from search.model import Observation, Verdict

STAGE_LAUNCH_S = 1.0
"""From asking Spark for the stage to its tasks' agreement, as measured on a warm session [s]."""

REPLICATED_DEADLINE_S = 15.0
"""How long followers may take to fetch what was acknowledged before the end offsets count [s]."""

_POLL_S = 0.25


@dataclass
class Outlook:
    """What the search expects next, for progress; set before each trial."""

    reason: str = ""
    trials_left: int = 0


class TrialMeasurer:
    """Measures loads for one message size; implements `search.goals.GoalsMeasurer`.

    Args:
        bpm: message size of the point [B].
    """

    def __init__(
        self, bench: Bench, topics: PointTopics, gates: Gates, bpm: int, outlook: Outlook
    ) -> None:
        self._bench = bench
        self._topics = topics
        self._gates = gates
        self._outlook = outlook
        self._bpm = bpm

    def measure(self, load: int) -> dict[str, Observation]:
        """What each goal says of a trial at `load`, as the search wants it; see `hold`."""
        record = record_of(self.hold(load))
        return {goal: record.observation(goal) for goal in self._bench.thresholds}

    def hold(self, load: int) -> Trial:
        """Offer `load` on the goals' axis, judge it by each, and append trial and samples.

        Raises:
            GuardStopError: a guard tripped; a trial that it ended is kept, as INVALID.
        """
        bench = self._bench
        traffic = traffic_at(bench.workload, bench.goal.search.axis, self._bpm, load)
        bench.guards.admit(traffic)
        topics = self._topics.open(traffic)
        refusals = self._gates.pass_all(topics)
        number, started_s = next(bench.numbers), time.time()
        self._announce(number, traffic)
        evidence = (
            Evidence.missing(traffic.np, started_s, *refusals)
            if refusals
            else self._run(number, traffic, topics)
        )
        trial = self._trial(number, traffic, topics, started_s, evidence)
        judged_s = time.time()
        try:
            trial = self._recovered(trial)
        finally:
            started_s += time.time() - judged_s  # rest is no work of the trial's
            bench.tables.append_trial(trial, evidence.samples)
        bench.records.append(record_of(trial))
        self._report(trial, traffic, time.time() - started_s)
        bench.guards.require_untripped()
        bench.check_cluster()
        return trial

    def _recovered(self, trial: Trial) -> Trial:
        """After an overload: the trial with the time that the brokers took to come to rest."""
        verdicts = {each.verdict for each in trial.verdicts.values()}
        if Verdict.OVERLOADED not in verdicts:
            return trial
        rest_s = self._gates.recover().since_s
        return trial if rest_s is None else replace(trial, recovery_s=rest_s - trial.client.end_s)

    # --- the trial ----------------------------------------------------------

    def _run(self, number: int, traffic: Traffic, topics: TopicSet) -> Evidence:
        bench = self._bench
        try:
            before = bench.topics.end_offsets(topics)
            client, samples = self._offer(number, traffic, topics, before)
            growth = self._growth(topics, before, client)
        except (StageFailedError, GeneratorError, AdminError) as error:
            rule, text = "task_failed", str(error)
            bench.guards.settle(traffic, None)
            if bench.guards.tripped is not None:
                rule, text = "guard", f"ended by a guard: {bench.guards.tripped}"
            return Evidence.missing(traffic.np, time.time(), Reason(rule, text, 1.0, 0.0))
        bench.guards.settle(traffic, client)
        self._gates.loaded()
        windows = {
            "brokers": brokers_of(bench.source),
            "controllers": controllers_of(bench.source) - brokers_of(bench.source),
        }
        interval_s = bench.workload.trial.sample_interval_s
        made = {
            kind: broker_windows(
                samples, ids, client.start_s, client.end_s, interval_s, bench.link_mbit_per_s
            )
            for kind, ids in windows.items()
        }
        ends = {partition: begin + growth[partition] for partition, begin in before.items()}
        return Evidence(
            client,
            tuple(samples),
            made["brokers"],
            made["controllers"],
            growth,
            lag_growth_per_s(client),
            tuple(consumption_mismatch(client, ends)),
        )

    def _offer(
        self, number: int, traffic: Traffic, topics: TopicSet, before: Mapping[int, int]
    ) -> tuple[ClientWindow, list[BrokerSample]]:
        bench, trial = self._bench, self._bench.workload.trial
        target = Target(topics.names, topics.leaders, bench.addresses, before)
        trial_id = f"{bench.run_id}-{number}"
        with Sampler(bench.source, trial.sample_interval_s) as sampler:
            watch = partial(self._watched, sampler, traffic)
            rows = bench.generator.offer(trial_id, target, traffic, watch)
            return merge(rows), sampler.stop()

    @contextmanager
    def _watched(self, sampler: Sampler, traffic: Traffic, line: TrialLine) -> Iterator[None]:
        bench, trial = self._bench, self._bench.workload.trial
        early_end = EarlyEnd(
            trial.stop_rule,
            line,
            sampler,
            brokers_of(bench.source),
            (trial.warmup_s, trial.measure_s),
            trial.sample_interval_s,
            tuple(bench.thresholds.values()),
            traffic.np * traffic.rate_records_per_s,
        )
        ticker = Ticker(bench.reporter, sampler, trial, line)
        with bench.guards.watch(line), early_end.watch(), ticker.watch():
            yield

    def _growth(
        self, topics: TopicSet, before: Mapping[int, int], client: ClientWindow
    ) -> dict[int, int]:
        """How much each partition's end offset grew.

        The end offset that clients see is the high watermark, which waits for followers
        although acks=1 does not; so wait until it covers what was acknowledged.
        """
        deadline_s = time.monotonic() + REPLICATED_DEADLINE_S
        while True:
            after = self._bench.topics.end_offsets(topics)
            growth = {partition: end - before[partition] for partition, end in after.items()}
            if sum(growth.values()) >= client.acked_total or time.monotonic() > deadline_s:
                return growth
            time.sleep(_POLL_S)

    # --- what is said and kept ----------------------------------------------

    def _announce(self, number: int, traffic: Traffic) -> None:
        trial = self._bench.workload.trial
        self._bench.reporter.report(
            TrialStarted(
                number=number,
                bpm=traffic.bpm,
                np=traffic.np,
                axis=traffic.axis,
                load=traffic.load,
                offered_mb_per_s=traffic.mb_per_s,
                reason=self._outlook.reason,
                duration_s=trial.load_s + STAGE_LAUNCH_S + TrialPlan.start_lead_s,
            )
        )

    def _trial(
        self,
        number: int,
        traffic: Traffic,
        topics: TopicSet,
        started_s: float,
        evidence: Evidence,
    ) -> Trial:
        growth = evidence.growth
        verdicts = judge_all(evidence, self._bench.thresholds)
        cut = cut_short(evidence.client, self._bench.workload.trial.measure_s)
        verdicts = {
            goal: replace(each, reasons=(*each.reasons, *cut)) for goal, each in verdicts.items()
        }
        return Trial(
            run_id=self._bench.run_id,
            trial=number,
            topic=topics.names[0],
            started_at_s=started_s,
            finished_at_s=time.time(),
            pattern=pattern_row(traffic, self._bench.brokers, self._bpm),
            client=evidence.client,
            brokers=evidence.brokers,
            judgement=verdicts[self._bench.goal.name],
            metrics_source=self._bench.source.name,
            controllers=evidence.controllers,
            end_offset_growth_records=None if growth is None else sum(growth.values()),
            verdicts=verdicts,
        )

    def _report(self, trial: Trial, traffic: Traffic, duration_s: float) -> None:
        left = max(0, self._outlook.trials_left - 1)
        self._bench.reporter.report(finished_event(trial, traffic, duration_s, left))
