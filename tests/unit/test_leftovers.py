"""Names by which the leftovers of a run are distinguished from the topics of others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from jobs.cleanup import cleanup
from jobs.cluster.admin import AdminError
from jobs.cluster.leftovers import Leftover, leftovers
from jobs.cluster.opening import OpenCluster
from jobs.cluster.topic_plan import topic_name, topic_names
from jobs.config.loading import load
from jobs.console.events import Notice, RecordingReporter
from jobs.runs.cluster_cleanup import _is_chosen
from jobs.runs.context_factory import ContextFactory
from jobs.runs.lifecycle import new_run_id
from metrics.common.errors import ConfigError
from tests.support.scripted_admin import ScriptedAdmin

AT_S = 1_790_000_000.0


@pytest.mark.parametrize("form", ["{}", "{}-a", "{}-c01-r2", "{}-1f2e"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_topics_of_a_run_are_known_with_its_time(form: str, count: int) -> None:
    run_id = new_run_id(AT_S)
    names = topic_names(topic_name(form.format(run_id), 1_000, 10), count)
    found = leftovers(names, ())
    assert {each.name for each in found} == set(names)
    assert {each.begun_s for each in found} == {AT_S}
    assert all(each.is_of(run_id) for each in found)
    assert not any(each.is_of(run_id[:-1]) for each in found), "another id that begins alike"


def test_groups_of_trials_are_known_and_the_lock_is_not_one_of_them() -> None:
    run_id = new_run_id(AT_S)
    names = (f"redline-{run_id}-12-group-0", f"redline-{run_id}-warm-up-1-group-1", "redline-lock")
    found = leftovers((), names)
    assert [each.name for each in found] == [*names[:2]]
    assert {(each.kind, each.begun_s) for each in found} == {("group", AT_S)}


@pytest.mark.parametrize(
    "name", ["orders", "redline", "redline-orders", "my-redline-x-100B-10p", "redline-x-100B", ""]
)
def test_topics_and_groups_of_others_stay(name: str) -> None:
    assert leftovers([name], [name]) == []


def test_nights_have_no_time_in_their_names() -> None:
    (found,) = leftovers([topic_name("testbed-2026-11-22", 100, 10)], ())
    assert found.begun_s is None
    (wrong,) = leftovers([topic_name("20269999-999999-ab12", 100, 10)], ())
    assert wrong.begun_s is None


def test_age_and_run_choose() -> None:
    old = Leftover("topic", "redline-20200101-000000-ab12-100B-10p", 1_577_836_800.0)
    night = Leftover("topic", "redline-night-1-100B-10p", None)
    assert _is_chosen(old, None, None) and _is_chosen(old, None, 3_600.0)
    assert _is_chosen(old, "20200101-000000-ab12", None) and not _is_chosen(old, "night", None)
    assert _is_chosen(night, None, None) and not _is_chosen(night, None, 60.0)
    assert _is_chosen(night, "night-1", 60.0)


class LeftBehind(ScriptedAdmin):
    """A cluster with topics and groups that refuses to delete a topic with `kept` in its name."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def topic_names(self) -> frozenset[str]:
        return frozenset(name for name in self.names if "group" not in name)

    def empty_groups(self) -> frozenset[str]:
        return frozenset(name for name in self.names if "group" in name)

    def delete_topic(self, topic: str) -> None:
        if "-kept-" in topic:
            raise AdminError(f"{topic} could not be deleted", "TopicAuthorizationFailedError")
        self.names.remove(topic)

    def delete_group(self, group_id: str) -> None:
        self.names.remove(group_id)


def test_a_resumed_run_deletes_only_its_own_leftovers(
    tmp_path: Path,
) -> None:
    run_id = new_run_id(AT_S)
    others = [topic_name(f"{run_id}x", 100, 10), "orders", topic_name(f"{run_id}-kept", 100, 10)]
    own = [topic_name(run_id, 100, 10), f"redline-{run_id}-3-group-0"]
    admin, reporter = LeftBehind([*others, *own]), RecordingReporter()
    config = load("testbed", "demo", "default")
    factory = ContextFactory(config, reporter, run_id, tmp_path, "unused", resumes=True)
    factory._delete_leftovers(cast(OpenCluster, SimpleNamespace(admin=admin)))
    assert admin.names == others
    trouble, count = [each.text for each in reporter.events if isinstance(each, Notice)]
    assert others[2] in trouble
    assert "2 of 3" in count


def test_a_testbed_needs_no_cleanup() -> None:
    with pytest.raises(ConfigError, match="cluster testbed is started by each run"):
        CliRunner().invoke(cleanup, ["--cluster", "testbed"], standalone_mode=False,
                           catch_exceptions=False)  # fmt: skip
