"""The properties and facts of a broker, and the resources that they govern.

The properties are those of https://kafka.apache.org/documentation/#brokerconfigs and
#topicconfigs. The resources follow from the broker's design: network threads read requests, send
responses and encrypt; request handlers append, decompress and flush; replica fetchers copy from
other leaders.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metrics.tables.environment import ABSENT, Difference
from metrics.windows.resource import Resource

_H, _N, _C, _D = (
    Resource.REQUEST_HANDLERS,
    Resource.NETWORK_THREADS,
    Resource.CPU,
    Resource.DISK,
)


@dataclass(frozen=True)
class Governor:
    """A property or fact, and the resources that it governs.

    Attributes:
        pattern: regular expression of names without `broker.`, a node's number and `config.`.
        resources: the resources that it governs.
        more_is: 1 if a larger value provides more of them, -1 if it consumes more, 0 if it depends.
        what: its meaning, as a predicate that follows "it".
    """

    pattern: str
    resources: tuple[Resource, ...]
    more_is: int
    what: str


GOVERNORS = (
    Governor(r"num\.io\.threads", (_H,), 1, "is the number of request handlers"),
    Governor(r"queued\.max\.requests", (_H,), 0, "limits the requests that wait for a handler"),
    Governor(
        r"(listener\.name\..+\.)?num\.network\.threads",
        (_N,),
        1,
        "is the number of network threads",
    ),
    Governor(
        r"socket\.(send|receive)\.buffer\.bytes",
        (_N, Resource.NETWORK, Resource.CONNECTION),
        0,  # -1 leaves the size to the system, which usually allows the most
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
        r"min\.insync\.replicas",
        (Resource.REPLICATION,),
        -1,
        "is how many replicas an acknowledgement waits for",
    ),
    Governor(
        r".*replication\.throttled\.rate",
        (Resource.REPLICATION,),
        1,
        "limits the bytes of replication",
    ),
    Governor(
        r"link\.(delay|jitter)",
        (Resource.CONNECTION,),
        0,
        "is the delay of the brokers' answers",
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
"""All governors; the first match wins."""

_PREFIX = re.compile(r"^(broker|controller|topic)\.(\d+\.)?(config\.)?")
VERSIONS = re.compile(
    r"^(broker(\.\d+)?\.(version|config\.(process\.roles|zookeeper\.connect))"
    r"|cluster\.[a-z.]*version)$"
)
"""Names of facts that state the release of Kafka, or the place of its metadata."""


def short_name(name: str) -> str:
    """A fact's name as Kafka's users know it, such as `num.io.threads`."""
    return _PREFIX.sub("", name)


def governor_of(name: str) -> Governor | None:
    """The governor of a fact's name, or None if it is not known."""
    short = short_name(name)
    found = (each for each in GOVERNORS if re.fullmatch(each.pattern, short))
    return next(found, None)


def can_slow(governor: Governor, changed: Difference) -> bool:
    """True if the change from `before` to `after` can have reduced a resource."""
    if not governor.more_is or ABSENT in (changed.before, changed.after):
        return True
    try:
        grown = float(changed.after) - float(changed.before)
    except ValueError:
        return True
    return grown * governor.more_is < 0
