"""The topics of the traffic being searched: made fresh, and deleted when they have served."""

from __future__ import annotations

from types import TracebackType

from jobs.cluster.admin import AdminError
from jobs.cluster.leftovers import leftovers
from jobs.cluster.topic_set import TopicSet
from jobs.console.events import warn
from jobs.trials.context import RunContext
from metrics.common.errors import RedlineError
from metrics.traffic.pattern import TopicOptions, TrafficPattern


class PointTopics:
    """Opens the topics of one traffic at a time; `close` deletes them and confirms it.

    A context manager: leaving it closes, and deletes the run's consumer groups. Where an error is
    already under way and the topics cannot be deleted either, that is a warning and the first
    error goes on.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._topics: TopicSet | None = None
        self._made_for: tuple[int, TopicOptions] | None = None

    def open(self, pattern: TrafficPattern) -> TopicSet:
        """The topics of this pattern: the open ones where they fit, else fresh ones."""
        wanted = (pattern.message_bytes, pattern.topic)
        if self._topics is not None and self._made_for == wanted:
            return self._topics
        self.close()
        self._topics = self._context.topics.create(pattern)
        self._made_for = wanted
        return self._topics

    def __enter__(self) -> PointTopics:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except RedlineError as second:
            if error is None:
                raise
            warn(self._context.reporter, f"topics of the run may be left: {second}")
        self._delete_groups()

    def _delete_groups(self) -> None:
        """The run's consumer groups, whose offsets brokers would keep for a week."""
        context = self._context
        if not any(trial.pattern.consumers.groups for trial in context.history.trials):
            return
        admin = context.cluster.admin
        try:
            for each in leftovers((), admin.empty_groups()):
                if each.is_of(context.run_id):
                    admin.delete_group(each.name)
        except AdminError as error:
            warn(context.reporter, f"consumer groups of the run may be left: {error}")

    def close(self) -> None:
        """Delete all topics of the run that are left, those of a creation that failed too."""
        self._topics = self._made_for = None
        self._context.topics.delete(self._context.topics.made)
