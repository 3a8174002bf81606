"""The topics of the current traffic pattern, created for this pattern and then deleted."""

from __future__ import annotations

from contextlib import AbstractContextManager
from shlex import quote

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import note, warn
from jobs.trials.context import RunContext
from metrics.common.errors import RedlineError
from metrics.traffic.pattern import TopicOptions, TrafficPattern


class PointTopics(AbstractContextManager["PointTopics"]):
    """Creates the topics of one traffic pattern at a time; `close` deletes the topics, and waits
    for the deletion.

    The context manager deletes the topics and the run's consumer groups at its end. A failed
    deletion is only a warning, because remaining topics do not change the results. Each later call
    of `close` also tries to delete the remaining topics. The last warning contains the command that
    deletes the remaining topics.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._topics: TopicSet | None = None
        self._made_for: tuple[tuple[str, int, TopicOptions], ...] | None = None

    def open(self, pattern: TrafficPattern) -> TopicSet:
        """Return the present topics if they are suitable for the traffic pattern; otherwise create
        new topics.

        New topics are also created if another client, such as a balancer, has moved the replicas of
        the present topics.
        """
        wanted = tuple((each.part, each.message_bytes, each.topic) for each in pattern.loads)
        if self._topics is not None and self._made_for == wanted:
            if not self._context.topics.are_moved(self._topics):
                self._topics = self._context.topics.refresh(self._topics)
                return self._topics
            moved = f"the replicas of topic {self._topics} were moved, so it is created again"
            note(self._context.reporter, moved)
        self.close()
        self._topics = self._context.topics.create(pattern)
        self._context.topics.probe(self._topics, pattern)
        for (_, own), part in zip(self._topics.numbered, pattern.loads, strict=True):
            if placement := own.placement_note(part.topic.partitions_per_broker):
                note(self._context.reporter, placement)
            if own.caveat:
                warn(self._context.reporter, f"topic {own}: {own.caveat}")
        self._made_for = wanted
        return self._topics

    def __exit__(self, *_: object) -> None:
        trouble = self._delete()
        if trouble is not None:
            remain = f"topics of the run may remain: {trouble}; {self._remedy}"
            warn(self._context.reporter, remain)
        self._delete_groups()

    @property
    def _remedy(self) -> str:
        """The command that deletes the remaining topics, or the reason why no command is needed."""
        context = self._context
        cluster = context.config.cluster
        if cluster.starts_brokers:
            return "the topics are deleted with the brokers of this run"
        of_run = f"--cluster {quote(cluster.given)} --run {context.topics.owner}"
        return f"redline cleanup {of_run} --yes deletes them"

    def _delete_groups(self) -> None:
        """Delete the run's consumer groups, because brokers would keep their offsets for a week."""
        context = self._context
        if not context.generator.groups:
            return
        admin = context.cluster.admin
        try:
            for group in sorted(context.generator.groups & admin.empty_groups()):
                admin.delete_group(group)
        except AdminError as error:
            warn(context.reporter, f"consumer groups of the run may remain: {error}")

    def close(self) -> None:
        """Delete all remaining topics of the run, including topics of a failed creation."""
        trouble = self._delete()
        if trouble is not None:
            later = f"topics are not deleted yet: {trouble}; the run tries again later"
            warn(self._context.reporter, later)

    def _delete(self) -> RedlineError | None:
        """Delete all remaining topics of the run; return the error of a failed deletion, otherwise
        None.
        """
        self._topics = self._made_for = None
        try:
            self._context.topics.delete(self._context.topics.made)
        except RedlineError as error:
            return error
        return None
