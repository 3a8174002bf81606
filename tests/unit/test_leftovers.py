"""Names by which what a run left is known, and told from what is another's."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from jobs.cleanup import _is_chosen, cleanup
from jobs.cluster.leftovers import Leftover, leftovers
from jobs.cluster.topic_plan import several, topic_name
from jobs.runs.lifecycle import new_run_id
from search.errors import ConfigError

AT_S = 1_790_000_000.0


@pytest.mark.parametrize("form", ["{}", "{}-a", "{}-c01-r2", "{}-1f2e"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_topics_of_a_run_are_known_with_its_time(form: str, count: int) -> None:
    run_id = new_run_id(AT_S)
    names = several(topic_name(form.format(run_id), 1_000, 10), count)
    found = leftovers(names, ())
    assert {each.name for each in found} == set(names)
    assert {each.begun_s for each in found} == {AT_S}
    assert all(each.is_of(run_id) for each in found)
    assert not any(each.is_of(run_id[:-1]) for each in found), "another id that begins alike"


def test_groups_of_trials_are_known_and_the_lock_is_none_of_them() -> None:
    run_id = new_run_id(AT_S)
    names = (f"redline-{run_id}-12-group-0", f"redline-{run_id}-warm-up-1-group-1", "redline-lock")
    found = leftovers((), names)
    assert [each.name for each in found] == [*names[:2]]
    assert {(each.kind, each.begun_s) for each in found} == {("group", AT_S)}


@pytest.mark.parametrize(
    "name", ["orders", "redline", "redline-orders", "my-redline-x-100B-10p", "redline-x-100B", ""]
)
def test_what_others_named_is_left_alone(name: str) -> None:
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


def test_a_testbed_has_nothing_to_clean() -> None:
    with pytest.raises(ConfigError, match="is a testbed, and what its runs make ends with it"):
        CliRunner().invoke(cleanup, ["--cluster", "testbed"], standalone_mode=False,
                           catch_exceptions=False)  # fmt: skip
