"""The likely cause of a difference between two sides of a comparison.

The likely cause is a property that has different values on the two sides and that affects the
limiting resource of the slower side. A likely cause is not proven. To prove that a property is the
cause, change only this property and compare the two sides again.

`GOVERNORS` lists properties of brokers and topics with the resources that they affect
(https://kafka.apache.org/documentation/#brokerconfigs and #topicconfigs). The resources follow from
the broker's design: network threads read requests, send responses and encrypt data; request
handlers append, decompress and flush batches; replica fetchers copy data from leaders on other
brokers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from metrics.judging.attribution import Attribution, AttributionVote, combine_votes, utilization
from metrics.tables.rows import ABSENT, Difference, difference
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.model import Verdict

_H, _N, _C, _D = (Resource.REQUEST_HANDLERS, Resource.NETWORK_THREADS, Resource.CPU, Resource.DISK)


@dataclass(frozen=True)
class Governor:
    """A property or fact of brokers with the resources that this property or fact affects.

    Attributes:
        pattern: regular expression for the name of the property, without the prefixes `broker.`,
            node number and `config.`.
        resources: the affected resources.
        more_is: 1 if a larger value of the property provides more of the resources, -1 if a larger
            value uses more of them, 0 if the effect is not known.
        what: the meaning of the property, as a phrase that begins with a verb.
    """

    pattern: str
    resources: tuple[Resource, ...]
    more_is: int
    what: str


GOVERNORS = (
    Governor(r"num\.io\.threads", (_H,), 1, "is the number of request handlers"),
    Governor(
        r"queued\.max\.requests", (_H,), 0, "limits the number of requests that wait for a handler"
    ),
    Governor(
        r"(listener\.name\..+\.)?num\.network\.threads",
        (_N,),
        1,
        "is the number of network threads",
    ),
    Governor(
        r"socket\.(send|receive)\.buffer\.bytes",
        (_N, Resource.NETWORK, Resource.CONNECTION),
        0,  # with -1, the system chooses the size, usually the largest one
        "limits the data that a connection can have in flight",
    ),
    Governor(
        r"(listener\.security\.protocol\.map|ssl\..+|sasl\..+|.*security.*protocol)",
        (_N, _C),
        0,
        "decides whether and how connections are encrypted",
    ),
    Governor(
        r"(log\.flush\.interval\.messages|log\.flush\.interval\.ms|flush\.messages|flush\.ms"
        r"|log\.flush\.scheduler\.interval\.ms)",
        (_D, _H),
        1,
        "decides how often an append waits for the disk",
    ),
    Governor(r"log\.dirs\.count", (_D,), 1, "is the number of log directories"),
    Governor(
        r"(log\.)?(segment\.bytes|roll\.ms|roll\.hours|preallocate|index\.size\.max\.bytes"
        r"|segment\.ms)",
        (_D,),
        0,
        "decides how often a new log file is created",
    ),
    Governor(
        r"compression\..*(type|level)",
        (_C, _H, _D, Resource.NETWORK),
        0,
        "decides whether brokers recompress batches",
    ),
    Governor(r"log\.cleaner\..+", (_C, _D), 0, "governs compaction"),
    Governor(r"cores", (_C,), 1, "is the number of processors"),
    Governor(r"jvm\.heap_max_bytes", (Resource.HEAP,), 1, "is the size of the heap"),
    Governor(
        r"jvm\.(arguments|name|vendor|version)",
        (Resource.HEAP, _C),
        0,
        "decides how code is compiled and how garbage is collected",
    ),
    Governor(r"memory_bytes", (_D, Resource.MEMORY), 1, "limits the page cache"),
    Governor(
        r"num\.replica\.fetchers",
        (Resource.REPLICATION,),
        1,
        "is the number of threads that copy from each leader",
    ),
    Governor(
        r"replica\.(fetch\.(max|response\.max)\.bytes|lag\.time\.max\.ms)",
        (Resource.REPLICATION,),
        1,
        "limits how followers keep up",
    ),
    Governor(
        r"(replica\.(fetch|socket)\..+|unclean\.leader\..+)",
        (Resource.REPLICATION,),
        0,
        "governs how followers fetch",
    ),
    Governor(
        r".*replication\.throttled\.rate",
        (Resource.REPLICATION,),
        1,
        "limits the bytes of replication",
    ),
    Governor(
        r"link\.(delay|jitter)", (Resource.CONNECTION,), 0, "is the delay of the brokers' responses"
    ),
    Governor(
        r"link\.(rate|loss)",
        (Resource.NETWORK, Resource.CONNECTION),
        0,
        "is a property of the link to the brokers",
    ),
    Governor(
        r"link\.(brokers|generator)_tcp_[rw]mem_max",
        (Resource.CONNECTION,),
        1,
        "limits the data that a connection can have in flight",
    ),
    Governor(r"(.*quota.*|.*byte_rate)", (Resource.QUOTA,), 1, "limits the traffic of clients"),
)
"""Properties and facts with the resources that they affect; the first entry that matches a name is
used."""

_PREFIX = re.compile(r"^(broker|controller|topic)\.(\d+\.)?(config\.)?")
VERSIONS = re.compile(
    r"^(broker(\.\d+)?\.(version|config\.(process\.roles|zookeeper\.connect))"
    r"|cluster\.[a-z.]*version)$"
)
"""Names of the facts about the release of Kafka and about the place of the cluster's metadata."""


def short_name(name: str) -> str:
    """The short name of a fact. For a property, this is Kafka's name, such as `num.io.threads`."""
    return _PREFIX.sub("", name)


def governor_of(name: str) -> Governor | None:
    """The first entry of `GOVERNORS` that matches the name of a fact; None if no entry matches."""
    short = short_name(name)
    found = (each for each in GOVERNORS if re.fullmatch(each.pattern, short))
    return next(found, None)


def can_slow(governor: Governor, changed: Difference) -> bool:
    """True if the change of a property can reduce the resources that this property affects."""
    if not governor.more_is or ABSENT in (changed.before, changed.after):
        return True
    try:
        grown = float(changed.after) - float(changed.before)
    except ValueError:
        return True
    return grown * governor.more_is < 0


ZOOKEEPER = "ZooKeeper"
KRAFT = "KRaft"
COMBINED = "KRaft controllers in brokers"

_OF_BROKERS = r"broker\.(?:\d+\.)?"
_VERSION = re.compile(rf"{_OF_BROKERS}version")
_ROLES = re.compile(rf"{_OF_BROKERS}config\.process\.roles")
_ZOOKEEPER = re.compile(rf"{_OF_BROKERS}config\.zookeeper\.connect")
_KRAFT_FEATURE = "cluster.metadata.version"
"""Name of the fact about a feature that only clusters with KRaft have."""


@dataclass(frozen=True)
class Release:
    """The release of a cluster's brokers.

    Attributes:
        versions: all versions of the brokers, oldest first; empty if the versions are not known.
        metadata: the place of the cluster's metadata, such as ZooKeeper; empty if the place is not
            known.
    """

    versions: tuple[str, ...]
    metadata: str

    @property
    def text(self) -> str:
        """The release in words, such as `Kafka 3.6.2 with ZooKeeper`; empty if it is not known."""
        place = f"with {self.metadata}" if self.metadata else ""
        known = [" and ".join(self.versions), place]
        return " ".join(["Kafka", *filter(None, known)]) if any(known) else ""


def release_of(environment: Mapping[str, str]) -> Release:
    """The release according to the facts of an environment."""
    versions = {value for name, value in environment.items() if _VERSION.fullmatch(name)}
    return Release(tuple(sorted(versions, key=_numbers)), " and ".join(_places(environment)))


def changed_release(before: Release, after: Release) -> tuple[str, str] | None:
    """Two different releases in words; None if all known facts about the releases are equal.

    Each text contains the place that stores the cluster's metadata, such as ZooKeeper or KRaft, if
    both places are known and differ.
    """
    if not (before.metadata and after.metadata) or before.metadata == after.metadata:
        before, after = replace(before, metadata=""), replace(after, metadata="")
    if not (before.versions and after.versions):
        before, after = replace(before, versions=()), replace(after, versions=())
    return None if before == after else (before.text, after.text)


def _places(environment: Mapping[str, str]) -> list[str]:
    """The places where the cluster stores its metadata.

    A cluster stores its metadata in one place. During a migration from ZooKeeper to KRaft, a
    cluster stores its metadata in two places.
    """
    roles = [value for name, value in environment.items() if _ROLES.fullmatch(name)]
    found = [ZOOKEEPER] if any(map(_ZOOKEEPER.fullmatch, environment)) else []
    if any("controller" in each for each in roles):
        found.append(COMBINED)
    elif roles or (not found and _KRAFT_FEATURE in environment):
        found.append(KRAFT)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


MAY_BIND_UTILIZATION = 0.80
"""Minimum use at saturation for a resource that may limit the slower side [ratio]."""
GROWTH_MIN = 1.10
"""Two sides are compared at the same load. A side uses more of a resource if its use, divided by
the use of the other side, is at least this value [ratio]."""
NOT_BROKERS = ("redline.", "package.", "python.", "driver.", "spark.", "controller.", "series.")
"""Prefixes of facts that do not describe brokers."""

SETTINGS = ("workload.", "goal.")
"""Prefixes of the keys that define the traffic and the rules of a verdict; the option `--set` sets
keys with these prefixes."""


@dataclass(frozen=True)
class SideEvidence:
    """The evidence of one side.

    Attributes:
        label: name of the side for people, such as `B`.
        saturated: trials of the side with saturated brokers.
        steady: trials of the side at a load that both sides sustain.
        environment: the facts of the environment, as in the table `runs`. The keys of the workload
            and of the goal are included.
    """

    label: str
    saturated: Sequence[Trial]
    steady: Sequence[Trial]
    environment: Mapping[str, str]

    @property
    def _attribution(self) -> Attribution | None:
        named = [trial.judgement for trial in self.saturated if trial.judgement.limited_by]
        return combine_votes([AttributionVote(judgement) for judgement in named])

    @property
    def limiting_resource(self) -> Resource:
        """The limiting resource at saturation, according to most trials with a known resource."""
        return Resource.UNKNOWN if self._attribution is None else self._attribution.resource

    @property
    def attribution(self) -> str:
        """Evidence for the limiting resource, from the last trial that this resource limited. After
        the evidence, the text states how many trials agree on the resource.
        """
        return "" if self._attribution is None else self._attribution.text


@dataclass(frozen=True)
class Cause:
    """The likely reason why one side is slower.

    Attributes:
        slower: label of the slower side.
        resource: the resource that limits the slower side.
        names: Kafka's names of the properties that differ between the sides and affect this
            resource; empty if no difference explains the result.
        text: the likely cause, in one sentence.
        evidence: facts that support the answer, one sentence for each fact.
    """

    slower: str
    resource: Resource
    names: tuple[str, ...]
    text: str
    evidence: tuple[str, ...] = field(default_factory=tuple)


def resource_use(trials: Sequence[Trial]) -> dict[Resource, float]:
    """Resource → its use [ratio]. The use in one trial is the highest use on any broker. The result
    is the median over all trials.
    """
    uses: dict[Resource, list[float]] = {}
    for trial in trials:
        if trial.judgement.verdict is Verdict.INVALID:
            continue
        tables = [utilization(window) for window in trial.evidence.brokers]
        for resource in Resource:
            used = [table[resource] for table in tables if resource in table]
            used += _interface_use(trial) if resource is Resource.NETWORK else []
            if used:
                uses.setdefault(resource, []).append(max(used))
    return {resource: median(values) for resource, values in uses.items()}


def _interface_use(trial: Trial) -> list[float]:
    """The use of each network interface of the brokers' hosts [ratio].

    Interfaces with an unknown speed are omitted.
    """
    hosts = [host for host in trial.evidence.hosts if host.brokers]
    shares = [each.used_share for host in hosts for each in host.interfaces]
    return [share for share in shares if share is not None]


def broker_differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[Difference, ...]:
    """The differences between two environments that can affect brokers."""
    return tuple(
        each for each in difference(before, after) if not each.name.startswith(NOT_BROKERS)
    )


def likely_cause(slower: SideEvidence, faster: SideEvidence) -> Cause:
    """Find the most likely cause, or report that no cause was found."""
    return _Explanation(slower, faster).cause()


@dataclass(frozen=True)
class _Explanation:
    """The search for the cause of a slower side."""

    slower: SideEvidence
    faster: SideEvidence

    def cause(self) -> Cause:
        differences = broker_differences(self.faster.environment, self.slower.environment)
        suspects = self._suspects()
        first = suspects[0] if suspects else Resource.UNKNOWN
        if differences and all(each.name.startswith(SETTINGS) for each in differences):
            return self._only_change(differences, first)
        versions = [each for each in differences if VERSIONS.match(each.name)]
        # If the release or the place of metadata differs, a property that exists on only one side
        # is a consequence of this difference.
        candidates = [
            each for each in differences if not versions or ABSENT not in (each.before, each.after)
        ]
        for resource in suspects:
            found = [each for each in candidates if _explains(each, resource)]
            if found:
                return self._governing(found, resource)
        return self._version(versions[0], first) if versions else self._none(differences)

    def _suspects(self) -> tuple[Resource, ...]:
        """The resources that may limit the slower side, most likely first.

        The order is: the limiting resource of the trials, resources with a high use at saturation,
        and resources that the slower side uses more than the faster side at the same load. Among
        the resources with a high use, request handlers come first, as in `Resource`. If all request
        handlers are busy, more handlers may help, because more of them can wait in parallel, for
        example for the disk.
        """
        limiting = self.slower.limiting_resource
        full = resource_use(self.slower.saturated)
        near = [name for name in Resource if full.get(name, 0.0) >= MAY_BIND_UTILIZATION]
        named = [] if limiting is Resource.UNKNOWN else [limiting]
        return tuple(dict.fromkeys([*named, *near, *(name for name, _ in self._grown())]))

    def _grown(self) -> list[tuple[Resource, float]]:
        """(resource, ratio) for each resource that the slower side uses more than the faster side
        at the same load. The highest ratio is first.
        """
        mine, theirs = resource_use(self.slower.steady), resource_use(self.faster.steady)
        times = {name: used / theirs[name] for name, used in mine.items() if theirs.get(name)}
        grown = [(name, ratio) for name, ratio in times.items() if ratio >= GROWTH_MIN]
        return sorted(grown, key=lambda each: -each[1])

    def _governing(self, found: Sequence[Difference], resource: Resource) -> Cause:
        changes = "; ".join(map(self._change, found))
        text = f"likely cause of the slower {self.slower.label}: {changes}"
        text = ". ".join(filter(None, (text, self._used(resource))))
        return self._made(resource, [short_name(each.name) for each in found], text, "")

    def _version(self, changed: Difference, resource: Resource) -> Cause:
        label = self.slower.label
        before, after = release_of(self.faster.environment), release_of(self.slower.environment)
        known = (f"{changed.name} {changed.before}", changed.after)
        theirs, own = changed_release(before, after) or known
        places = {before.metadata, after.metadata} - {""}
        more = ", ".join(f"{name.value} ×{ratio:.2f}" for name, ratio in self._grown())
        cost = (
            f"at the same load {label} uses more than {self.faster.label}: {more}"
            if more
            else f"at the same load {label} uses no more of any resource than {self.faster.label}"
        )
        return self._made(
            resource,
            ("version", *(["metadata"] if len(places) > 1 else [])),
            f"likely cause of the slower {label}: the change from {theirs} to {own}; no other "
            f"difference explains the limiting resource ({resource.value}); {cost}",
        )

    def _only_change(self, changed: Sequence[Difference], resource: Resource) -> Cause:
        """The cause if the two sides differ only in settings of the workload or of the goal."""
        label, limiting = self.slower.label, self.slower.limiting_resource
        bound = "" if limiting is Resource.UNKNOWN else f"; {limiting.value} limits {label}"
        return self._made(
            resource,
            [short_name(each.name) for each in changed],
            f"cause of the slower {label}: {'; '.join(map(self._change, changed))}, and all other "
            f"compared facts are equal{bound}",
        )

    def _none(self, differences: Sequence[Difference]) -> Cause:
        label, limiting = self.slower.label, self.slower.limiting_resource
        if differences:
            among = ", ".join(dict.fromkeys(short_name(each.name) for each in differences))
            why = (
                f"none of the differences ({among}) explains the limiting resource of {label} "
                f"({limiting.value})"
            )
        else:
            count = len(self.slower.environment.keys() & self.faster.environment.keys())
            why = f"all {count} compared properties and facts are equal on both sides"
        return self._made(limiting, (), f"no cause found for the slower {label}: {why}")

    def _made(
        self, resource: Resource, names: Sequence[str], text: str, used: str | None = None
    ) -> Cause:
        """Make a cause with its evidence: the limiting resource of each side, and the use of
        `resource`.
        """
        limits = (
            f"{side.label} saturated, bound by {side.attribution or side.limiting_resource.value}"
            for side in (self.slower, self.faster)
        )
        used = self._used(resource) if used is None else used
        evidence = (*limits, *filter(None, (used,)))
        return Cause(self.slower.label, resource, tuple(dict.fromkeys(names)), text, evidence)

    def _change(self, changed: Difference) -> str:
        governor = governor_of(changed.name)
        what = f" (it {governor.what})" if governor else ""
        return (
            f"{short_name(changed.name)} is {changed.after} on {self.slower.label} and "
            f"{changed.before} on {self.faster.label}{what}"
        )

    def _used(self, resource: Resource) -> str:
        """The use of a resource on both sides, in words; empty if the use is not known."""
        slower, faster, parts = self.slower, self.faster, []
        for when, mine, theirs in (
            ("saturated", slower.saturated, faster.saturated),
            ("at the same load", slower.steady, faster.steady),
        ):
            used, other = resource_use(mine).get(resource), resource_use(theirs).get(resource)
            if used is not None and other is not None:
                parts.append(
                    f"{when} {used:.2f} on {slower.label} and {other:.2f} on {faster.label}"
                )
        name = resource.value[:1].upper() + resource.value[1:]
        return f"{name} used: {'; '.join(parts)}" if parts else ""


def _explains(changed: Difference, resource: Resource) -> bool:
    """True if the changed property affects the resource, and the change can reduce the limit."""
    governor = governor_of(changed.name)
    return governor is not None and resource in governor.resources and can_slow(governor, changed)
