"""The proof by which the leftovers of a run are distinguished from the topics of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from jobs.cleanup import cleanup
from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.opening import OpenCluster
from jobs.cluster.owner_topic import owner_topics
from jobs.cluster.topic_plan import MARK, Leftover, leftovers, mark_of, topic_name, topic_names
from jobs.config.loading import load
from jobs.console.events import Notice, RecordingReporter
from jobs.engine.network.options import NAME_PREFIX
from jobs.runs.cluster_cleanup import _is_chosen
from jobs.runs.context_factory import ContextFactory, RunOrder
from jobs.runs.lifecycle import new_run_id
from jobs.trials.canaries import canary_topic
from metrics.common.errors import ConfigError
from tests.support.scripted_admin import ScriptedAdmin

AT_S = 1_790_000_000.0


RUN = "20260921-141320-8c1c"


class LeftBehind(ScriptedAdmin):
    """A cluster with topics, their marks and groups.

    Attributes:
        marks: topic → the value of the property that marks it; None where it is hidden.
        committed: group → topics with committed offsets; None where these are hidden.
    """

    def __init__(
        self,
        marks: Mapping[str, str | None],
        committed: Mapping[str, Collection[str] | None] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.marks, self.committed = dict(marks), dict(committed)

    @property
    def names(self) -> set[str]:
        return {*self.marks, *self.committed}

    def topic_names(self) -> frozenset[str]:
        return frozenset(self.marks)

    def empty_groups(self) -> frozenset[str]:
        return frozenset(self.committed)

    def topic_config(self, topic: str, names: Sequence[str] | None = None) -> dict[str, str | None]:
        if self.marks[topic] is None:
            raise AdminError("it is hidden", "TopicAuthorizationFailedError")
        return {MARK: self.marks[topic]}

    def committed_offsets(self, groups: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
        (group,) = groups
        found = self.committed[group]
        if found is None:
            raise AdminError("it is hidden", "GroupAuthorizationFailedError")
        return {group: {(topic, 0): 1 for topic in found}}

    def delete_topic(self, topic: str) -> None:
        if "-kept-" in topic:
            raise AdminError(f"{topic} could not be deleted", "TopicAuthorizationFailedError")
        del self.marks[topic]

    def delete_group(self, group_id: str) -> None:
        del self.committed[group_id]


def mark(run_id: str = RUN, is_locked: bool = True) -> str:
    return mark_of(run_id, is_locked)[MARK]


def proven(admin: LeftBehind, prefix: str = NAME_PREFIX) -> dict[str, str]:
    """Name → the run that made it, for all that is proven."""
    return {each.name: each.run_id for each in leftovers(admin, prefix) if each.run_id}


@pytest.mark.parametrize("form", ["{}", "{}-a", "{}-c01-r2", "{}-1f2e", "{}-canary"])
@pytest.mark.parametrize("run_id", [RUN, "testbed-2026-11-22", "a", "x_1.b"])
def test_a_run_is_known_by_its_id_in_name_and_mark(form: str, run_id: str) -> None:
    own = form.format(run_id)
    for prefix, is_locked in product((NAME_PREFIX, "team-a-"), (True, False)):
        names = topic_names(topic_name(own, 1_000, 10, prefix=prefix), 3)
        if own.endswith("-canary"):
            names = (canary_topic(f"{prefix}{run_id}"),)
        admin = LeftBehind(dict.fromkeys(names, mark(run_id, is_locked)))
        assert proven(admin, prefix) == dict.fromkeys(names, run_id)
        found = leftovers(admin, prefix)
        assert {each.is_locked for each in found} == {is_locked}
        assert {each.begun_s for each in found} == {AT_S if run_id == RUN else None}
        assert leftovers(admin, "team-b-") == []


def test_a_name_alone_proves_nothing() -> None:
    own, other = topic_name(RUN, 100, 10), topic_name(new_run_id(AT_S + 1), 100, 10)
    topics = {
        "redline-payments-canary": "86400000",
        "redline-orders-100B-3p": "86400000",
        other: mark(),  # of another run than the name's
        topic_name("20200101-000000-ab12", 100, 1): None,
        topic_name("20200101-000000-ab13", 100, 1): "604800000",
        "redline-stop": mark(),
        "orders": mark(),
        own: mark(),
    }
    groups: dict[str, Collection[str] | None] = {
        "redline-billing-group-1": ["billing"],
        f"redline-{RUN}-1-group-0": [own],
        f"redline-{RUN}-1-group-1": [own, "billing"],
        f"redline-{RUN}-1-group-2": [],
        f"redline-{RUN}-1-group-3": None,
        f"redline-{RUN}x-1-group-0": [own],
        "redline-lock": [],
    }
    admin = LeftBehind(topics, groups)
    assert proven(admin) == dict.fromkeys((own, f"redline-{RUN}-1-group-0"), RUN)
    unproven = {each.name for each in leftovers(admin, NAME_PREFIX) if not each.run_id}
    not_ours = {"redline-stop", "orders", "redline-lock"}
    assert unproven == {*topics, *groups} - {*proven(admin), *not_ours}


def test_age_and_run_choose() -> None:
    old = Leftover("topic", "redline-20200101-000000-ab12-100B-10p", "20200101-000000-ab12", True)
    night = Leftover("topic", "redline-night-1-100B-10p", "night-1", True)
    for locks in (True, False):
        chosen = partial(_is_chosen, locks=locks)
        assert chosen(old, None, None) is locks and chosen(old, None, 3_600.0) is locks
        assert chosen(old, old.run_id, None) and not chosen(night, "night", None)
        assert chosen(night, "night-1", 60.0) and not chosen(night, None, 60.0)
        # A run without the lock may be active, whoever holds the lock now.
        assert not chosen(replace(old, is_locked=False), None, None)
        assert chosen(replace(old, is_locked=False), old.run_id, None)
        assert not chosen(replace(old, run_id=""), None, None)


def test_a_resumed_run_deletes_only_its_own_leftovers(tmp_path: Path) -> None:
    refused = topic_name(f"{RUN}-kept", 100, 10)
    others = {topic_name(f"{RUN}x", 100, 10): mark(f"{RUN}x"), "orders": None}
    unmarked = {topic_name(f"{RUN}-2", 100, 10): "86400000"}
    own, group = topic_name(RUN, 100, 10), f"redline-{RUN}-3-group-0"
    topics = {**others, **unmarked, refused: mark(), own: mark()}
    admin, reporter = LeftBehind(topics, {group: [own]}), RecordingReporter()
    config = load("testbed", "demo", "default")
    order = RunOrder(tmp_path, "unused", reporter=reporter, run_id=RUN, resumes=True)
    factory = ContextFactory(config, order, RUN, reporter)
    factory._delete_leftovers(cast(OpenCluster, SimpleNamespace(admin=admin)), "this part")
    assert admin.names == {*others, *unmarked, refused}
    trouble, count = [each.text for each in reporter.events if isinstance(each, Notice)]
    assert refused in trouble
    assert "2 of 3" in count


def test_cleanup_is_for_clusters_of_others_and_never_takes_the_topic_of_an_owner() -> None:
    """Not even with the mark of a run, as the last word of its name is no topic of a run."""
    with pytest.raises(ConfigError, match="cluster testbed is started by each run"):
        CliRunner().invoke(cleanup, ["--cluster", "testbed"], standalone_mode=False,
                           catch_exceptions=False)  # fmt: skip
    prefixes = ("redline-", f"redline-{RUN}-")
    admin = LeftBehind({name: mark() for prefix in prefixes for name in owner_topics(prefix)})
    for prefix in prefixes:
        assert leftovers(cast(KafkaAdmin, admin), prefix) == []
