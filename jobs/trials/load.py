"""The load generator runs the producers of a traffic pattern as one barrier stage of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from jobs.cluster.topic_set import TopicSet
from jobs.engine.network.options import NAME_PREFIX, TokenProvider
from jobs.engine.stage import stage_frame
from jobs.engine.task.plan import StagePlan, TrialPlan
from jobs.spark.session import (
    await_slots,
    cancel_group,
    cause_of,
    registered_slots,
    run_interruptibly,
)
from jobs.trials.control_server import ControlServer, TaskChannel, TaskEndedError
from jobs.trials.watching import watching
from metrics.common.errors import ConfigError, RedlineError
from metrics.planning.load_needs import SlotShare, share_slots, slots_needed
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import Climb
from metrics.trial.client import WINDOW_TOLERANCE_S, TaskReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOST_LOOK_S = 0.2
"""Interval between two checks for lost tasks [s]."""

TOKEN_LOOK_S = 1.0
"""Interval between two checks for a new token [s]."""

START_EACH_S = 0.002
"""The load starts some time after the last task's report. Each task of the load makes this time
longer by this value [s]. The driver sends the start signals one after another, and tasks may share
cores.
"""

SLOTS_WAIT_S = 180.0
"""Longest wait for the slots of a load after the loss of an executor, until Spark has started
another executor [s]. The file conf/spark/submit.properties makes Spark wait for this time, too.
"""

LOST_HEARD_S = 2.0
"""Longest time from the end of an executor until the channels of its tasks close on the
driver [s].
"""

Watch = Callable[[TaskChannel], AbstractContextManager[object]]
"""Watches a load through the load's channel, from before the tasks start until after they end."""


class GeneratorError(RedlineError):
    """A load failed, because Spark could not run the stage of the load to its end, or because a
    task failed. For example, an executor was lost, or a task could not reach a broker.
    """


@dataclass(frozen=True)
class Load:
    """A load on existing topics, with one window or several windows without a gap.

    Attributes:
        name: name of the load, unique on the cluster.
        topics: the topics of the load.
        pattern: the traffic of the load, up to the end of the first window.
        brokers: broker id → (host, port).
        end_offsets: partition → end offset before the load, from which consumer groups read; empty
            if no consumer groups run.
        windows: number of windows.
        climb: the steps of a growing load; None if all producers begin at once.
    """

    name: str
    topics: TopicSet
    pattern: TrafficPattern
    brokers: Mapping[int, tuple[str, int]]
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    windows: int = 1
    climb: Climb | None = None

    @property
    def whole(self) -> TrafficPattern:
        """The traffic of all windows together."""
        phases = self.pattern.phases
        return self.pattern.with_phases(replace(phases, measure_s=self.windows * phases.measure_s))


def require_room(pattern: TrafficPattern, slots: int) -> None:
    """Refuse a pattern whose producers and consumer groups cannot run.

    Args:
        pattern: the traffic of the load.
        slots: number of tasks that can run at the same time.

    Raises:
        ConfigError: the consumer groups or a part of a mix have no slot, or a group has more
            members than there are partitions.
    """
    if pattern.parts:
        needed = slots_needed(pattern)
        if slots < needed:
            raise ConfigError(
                f"the workload is a mix of {len(pattern.parts)} parts and Spark has {slots} slots; "
                f"expected {needed} or more, one for the producers of each part and one for its "
                f"consumer groups; use more cores, or --slots {needed} on this machine"
            )
        for each in pattern.parts:
            require_room(each, slots)
        return
    groups, members = pattern.consumers.groups, pattern.consumers.members
    partitions = pattern.partitions
    if groups and slots < 2:
        raise ConfigError(
            f"workload consumers.groups is {groups} and Spark has {slots} slot; expected 2 slots "
            "or more, one for the producers and one for the consumers; use more cores"
        )
    if groups and members > partitions:
        raise ConfigError(
            f"workload consumers.members is {members} and the topics have {partitions} partitions; "
            "expected no more members than partitions, because further members would read nothing; "
            "lower consumers.members"
        )


@dataclass
class Generator:
    """Runs the loads of trials on a Spark session.

    Args:
        spark: the Spark session.
        slots: number of tasks that can run at the same time; a trial has at most this number of
            tasks.
        client_options: connection options of kafka-python, with secrets resolved.
        control: the server to which tasks report; a task that loses its connection ends its load.
        network_namespace: file of the network namespace in which tasks connect to the brokers;
            empty for the namespace of the executors.
        interface_speeds: network interface → its speed [B/s]; only interfaces whose speed the
            system does not show.
        report: receives a sentence if a load has to wait until Spark can run all tasks at once.
        name_prefix: the value of `cluster.name_prefix`.

    Attributes:
        groups: ids of the consumer groups that the loads have used.
    """

    spark: SparkSession
    slots: int
    client_options: Mapping[str, object]
    control: ControlServer
    network_namespace: str = ""
    interface_speeds: Mapping[str, float] = field(default_factory=dict)
    report: Callable[[str], None] = lambda _: None
    name_prefix: str = NAME_PREFIX
    groups: set[str] = field(default_factory=set)
    _token_problem: str = ""

    def offer(self, load: Load, watch: Watch = nullcontext) -> list[TaskReport]:
        """Run the producers and consumers of a load through warm-up, windows and drain.

        Args:
            load: the load.
            watch: watches the load, and receives the reports on all windows except the last one.

        Returns:
            The reports on the last window, one for each task.

        Raises:
            ConfigError: the consumer groups have no slot, or a task lacks a library that the
                workload needs, such as a codec.
            GeneratorError: the load is not valid. Either the stage failed and Spark has stopped its
                tasks, or Spark has too few slots, or a task could not run.
        """
        pattern, reads = load.pattern, bool(load.end_offsets)
        if reads or pattern.parts:
            require_room(pattern, self.slots)
        shares = share_slots(pattern, self.slots, reads=reads)
        tasks = sum(each.tasks for each in shares)
        hosts = sum(each.consumer_tasks for each in shares)
        self._await_slots(tasks + hosts)
        with (
            self.control.channel(tasks, hosts) as channel,
            watch(channel),
            watching("failed-load", partial(self._cancel_if_failed, load.name, channel)),
            watching("tokens", partial(self._send_token, channel)),
        ):
            plan = TrialPlan(
                trial_id=load.name,
                topics=load.topics.names,
                pattern=pattern,
                tasks=tasks,
                leaders=load.topics.leaders,
                brokers=load.brokers,
                client_options=self.client_options,
                control=channel.address,
                consumer_tasks=hosts,
                windows=load.windows,
                end_offsets=load.end_offsets,
                network_namespace=self.network_namespace,
                interface_speeds=self.interface_speeds,
                climb=load.climb,
                name_prefix=self.name_prefix,
                start_lead_s=TrialPlan.start_lead_s + START_EACH_S * (tasks + hosts),
            )
            channel.open_timeout_s = plan.open_timeout_s
            plans = plans_of_parts(plan, load.topics, shares)
            if reads:
                self.groups.update(
                    each.group_id(group)
                    for each in plans
                    for group in range(each.pattern.consumers.groups)
                )
            return self._run(StagePlan(plans), channel)

    def _await_slots(self, wanted: int) -> None:
        """Wait until Spark can run all tasks at once, because it may have lost an executor.

        Raises:
            GeneratorError: slots are still missing after `SLOTS_WAIT_S`.
        """
        count = partial(registered_slots, self.spark.sparkContext)
        if (now := count()) >= wanted:
            return
        self.report(f"waiting for {wanted - now} of {wanted} slots, because Spark lost an executor")
        ready = await_slots(count, wanted, SLOTS_WAIT_S)
        if ready.count < wanted:
            raise GeneratorError(
                f"{wanted - ready.count} of {wanted} slots are missing after "
                f"{ready.waited_s:.0f} s: Spark lost an executor and has not replaced it; check "
                "the executors in Spark's web UI, free cores of Spark's cluster, or run with fewer "
                "slots (--slots)"
            )

    def _cancel_if_failed(self, trial_id: str, channel: TaskChannel) -> float | None:
        """Cancel the stage of a failed load at once; Spark itself notices the loss of a machine
        late.
        """
        if channel.failure is None:
            return LOST_LOOK_S
        cancel_group(self.spark, trial_id)
        return None

    def _send_token(self, channel: TaskChannel) -> float | None:
        """Send a new token for the brokers to all tasks; a known token is not sent again.

        A failing token source does not end the load: brokers may still accept the last token, and
        the source may recover.
        """
        tokens = self.client_options.get("sasl_oauth_token_provider")
        if not isinstance(tokens, TokenProvider):
            return None
        try:
            channel.renew_token(tokens.token(), tokens.good_until_s)
            self._token_problem = ""
        except ConfigError as error:
            if not self._token_problem:
                self.report(f"the tasks of the load keep their last token: {error}")
            self._token_problem = str(error)
        return TOKEN_LOOK_S

    def _run(self, plan: StagePlan, channel: TaskChannel) -> list[TaskReport]:
        from py4j.protocol import Py4JJavaError

        try:
            frame = stage_frame(self.spark, plan)
            collected = run_interruptibly(self.spark, plan.trial_id, frame.collect)
        except Py4JJavaError as error:
            channel.await_failure(LOST_HEARD_S)  # Spark may notice the failure before the driver
            _require_whole(plan, channel)
            raise GeneratorError(
                f"the stage of trial {plan.trial_id} failed: {cause_of(error)}"
            ) from error
        _require_whole(plan, channel)
        rows = [TaskReport.from_row(row.asDict(recursive=True)) for row in collected]
        refusals = [row.error for row in rows if row.error and row.is_refused]
        if refusals:
            raise ConfigError(refusals[0])
        failed = [row for row in rows if row.error]
        if failed:
            first = f"task {failed[0].task_id} on {failed[0].host}: {failed[0].error}"
            raise GeneratorError(f"{len(failed)} of {len(rows)} tasks failed: {first}")
        _require_one_window(rows)
        return rows


def plans_of_parts(
    plan: TrialPlan, topics: TopicSet, shares: Sequence[SlotShare]
) -> tuple[TrialPlan, ...]:
    """The plans of a mix's parts, each with the numbers of its tasks, producers and groups; without
    a mix, the whole plan.

    Args:
        plan: the plan of the whole load.
        topics: the topics of the whole load.
        shares: the number of tasks of each part.
    """
    if not plan.pattern.parts:
        return (plan,)
    plans = []
    producer = group = task = 0
    consumer_task = plan.tasks
    for part, (first, own), share in zip(plan.pattern.parts, topics.numbered, shares, strict=True):
        partitions = range(first, first + len(own.leaders))
        plans.append(
            replace(
                plan,
                pattern=part,
                topics=own.names,
                leaders=own.leaders,
                end_offsets={
                    number - first: end
                    for number, end in plan.end_offsets.items()
                    if number in partitions
                },
                tasks=share.tasks,
                consumer_tasks=share.consumer_tasks,
                part=part.part,
                climb=plan.climb and plan.climb.of_part(part.producers, plan.pattern.on_axis),
                first_partition=first,
                first_producer=producer,
                first_group=group,
                first_task=task,
                first_consumer_task=consumer_task,
                stage_consumer_tasks=plan.consumer_tasks,
            )
        )
        producer += part.producers
        group += part.consumers.groups
        task += share.tasks
        consumer_task += share.consumer_tasks
    return tuple(plans)


def _require_one_window(rows: Sequence[TaskReport]) -> None:
    """Raise an error if a task offered its load for too long, because it received the message about
    the window's end too late.
    """
    end_s = min(row.end_s for row in rows)
    late = [row for row in rows if row.end_s - end_s > WINDOW_TOLERANCE_S]
    if late:
        raise GeneratorError(
            f"{len(late)} of {len(rows)} tasks failed: task {late[0].task_id} on {late[0].host} "
            f"received the end of the window late, and continued for "
            f"{late[0].end_s - end_s:.2f} s; check the network between the task and the driver"
        )


def _require_whole(plan: StagePlan, channel: TaskChannel) -> None:
    """Raise the error that ended the load early, even if Spark reported no error."""
    if isinstance(channel.failure, TaskEndedError):
        raise GeneratorError(f"trial {plan.trial_id}: {channel.failure}")
    if channel.failure is not None:
        raise channel.failure
