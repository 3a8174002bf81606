"""The consumer groups of topics: their members, and how far behind they read.

It joins no group and commits nothing: it lists groups, describes them, and reads the offsets that
they committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.cluster.admin import AdminError, KafkaAdmin
from metrics.learning.topic import GroupFacts

GROUPS_MAX = 1_000
"""Number of groups whose offsets are read."""
_AT_ONCE = 50
Ends = Mapping[tuple[str, int], int]
"""(Topic, partition) → its end offset."""


def groups_of(
    admin: KafkaAdmin, ends: Ends, note: Callable[[str], None]
) -> dict[str, list[GroupFacts]]:
    """Topic → the groups that committed offsets of it.

    What this user may not see is named by `note`, and left out.

    Args:
        ends: the partitions of the topics, with their end offsets.
    """
    try:
        names = sorted(
            admin.ask(
                "list consumer groups",
                lambda: [str(each["group_id"]) for each in admin.client.list_groups()],
            )
        )
    except AdminError as error:
        note(f"consumer groups are not known: {error}")
        return {}
    if len(names) > GROUPS_MAX:
        note(f"{len(names):,} consumer groups; only the first {GROUPS_MAX:,} are looked at")
    found: dict[str, list[GroupFacts]] = defaultdict(list)
    failed: list[str] = []
    for start in range(0, min(len(names), GROUPS_MAX), _AT_ONCE):
        chunk = names[start : start + _AT_ONCE]
        committed = _committed_by_each(admin, chunk, ends, failed)
        reading = [name for name in chunk if committed.get(name)]
        described = _described(admin, reading)
        for name in reading:
            for topic, lag in _lags(committed[name], ends).items():
                members, state = described.get(name, (None, ""))
                found[topic].append(GroupFacts(name, members, lag, state))
    if failed:
        note(f"the offsets of {len(failed)} consumer groups are not known: {failed[0]}")
    return dict(found)


def _committed_by_each(
    admin: KafkaAdmin, groups: Sequence[str], ends: Ends, failed: list[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """The offsets of groups, at once or else one by one, as a single group may be refused."""
    try:
        return _committed(admin, groups, ends)
    except AdminError:
        found: dict[str, dict[tuple[str, int], int]] = {}
        for group in groups:
            try:
                found |= _committed(admin, [group], ends)
            except AdminError as error:
                failed.append(str(error))
        return found


def _committed(
    admin: KafkaAdmin, groups: Sequence[str], ends: Ends
) -> dict[str, dict[tuple[str, int], int]]:
    """Group → (topic, partition) → its committed offset, of these partitions only."""

    def read() -> Any:
        return admin.client.list_group_offsets(list(groups))

    answer = admin.ask("read the offsets of consumer groups", read)
    return {
        group: {
            place: int(known.offset)
            for each, known in offsets.items()
            if known.offset >= 0 and (place := (each.topic, each.partition)) in ends
        }
        for group, offsets in answer.items()
    }


def _described(admin: KafkaAdmin, groups: Sequence[str]) -> dict[str, tuple[int | None, str]]:
    """Group → number of its members, and its state; None where the brokers do not report them."""
    if not groups:
        return {}
    try:
        answer = admin.ask(
            "describe consumer groups", lambda: admin.client.describe_groups(list(groups))
        )
    except AdminError:
        return {}
    return {
        name: (None, "") if each.get("error") else (len(each["members"]), str(each["group_state"]))
        for name, each in answer.items()
    }


def _lags(committed: Mapping[tuple[str, int], int], ends: Ends) -> dict[str, int]:
    """Topic → records between the committed offsets and the ends."""
    found: dict[str, int] = {}
    for (topic, partition), offset in committed.items():
        behind = max(0, ends[topic, partition] - offset)
        found[topic] = found.get(topic, 0) + behind
    return found
