"""A run that takes turns with the original of a learnt workload, in a process of its own.

A mix needs a Spark session with a slot for each part, which the session of the tests lacks. The
process prints `resume` and `pause` when the original has to send or to stop, and at its end a JSON
document with the loads of each turn.

Arguments: the cluster's file, the workload, a folder for the run, the number of turns, the topics
of the original with commas between them, a JSON object with the data folder of each broker, and
overrides of the workload.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs.cluster.connect import connect
from jobs.config import Configuration, Workload, load
from jobs.console.events import RecordingReporter
from jobs.runs.context_factory import RunOrder
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import RunState, execute
from jobs.trials.measure import Rig
from metrics.traffic.batch_headers import batches_in
from metrics.traffic.mix import SCALE_UNITS
from metrics.windows.broker import BrokerWindow
from tests.support.loaded_brokers import watched

SETTLED_S, WINDOW_S, INTERVAL_S = 3.0, 22.0, 0.5
SENT_S = 1.0
"""Time after a pause in which the open batches are sent: twice the longest linger [s]."""
OPTIONS = (
    "cluster.warm_up_max_s=0",
    f"workload.trial.warmup_s={SETTLED_S:g}",
    f"workload.trial.measure_s={WINDOW_S:g}",
    f"workload.trial.sample_interval_s={INTERVAL_S:g}",
    "goal.guards.canary_p99_ms_max=null",  # canaries are no part of the copy
)


def say(text: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class BrokerLoad:
    """The load of one broker in a window.

    Attributes:
        requests_per_s: produce requests [1/s].
        batches_per_s: batches in the partitions that it leads [1/s].
        bytes_per_s: size of these batches [B/s].
        busy: share of the time of its request handlers [ratio].
    """

    requests_per_s: float
    batches_per_s: float
    bytes_per_s: float
    busy: float


@dataclass(frozen=True)
class Turn:
    """Broker → its load under the original, and under the copy."""

    original: Mapping[int, BrokerLoad]
    copy: Mapping[int, BrokerLoad]


class Logs:
    """The logs of brokers, by their files.

    Args:
        folders: broker id → folder of its data.
        originals: the topics of the original; the others are the copy's.
    """

    def __init__(
        self, servers: Sequence[str], folders: Mapping[int, Path], originals: Sequence[str]
    ) -> None:
        self._servers = servers
        self._folders = folders
        self._originals = frozenset(originals)

    def batches(self, from_s: float, to_s: float, *, is_copy: bool) -> dict[int, Counter[str]]:
        """Broker → number and size of the batches of a time that it leads."""
        with connect(self._servers) as admin:
            leaders = {
                f"{each.name}-{number}": part.leader
                for each in admin.describe_topics()
                if (each.name not in self._originals) is is_copy and not each.is_internal
                for number, part in each.partitions.items()
            }
        found: dict[int, Counter[str]] = {}
        topics: dict[str, Counter[str]] = {}
        for broker_id, folder in self._folders.items():
            own = found.setdefault(broker_id, Counter())
            for place in folder.iterdir():
                if leaders.get(place.name) != broker_id:
                    continue
                name = place.name.rpartition("-")[0]
                topic = topics.setdefault(f"{name} on broker {broker_id}", Counter())
                for segment in place.glob("*.log"):
                    for header, _ in batches_in(segment.read_bytes()).batches:
                        if from_s <= header.max_ms / 1e3 < to_s:
                            for counts in (own, topic):
                                counts["batches"] += 1
                                counts["bytes"] += header.size_bytes
                                counts["records"] += header.records
        say(f"{'copy' if is_copy else 'original'} {json.dumps(topics)}")
        return found

    def loads(
        self, windows: Sequence[BrokerWindow], from_s: float, to_s: float, *, is_copy: bool
    ) -> dict[int, BrokerLoad]:
        """Broker → its load, from its metrics and its log."""
        batches, span_s = self.batches(from_s, to_s, is_copy=is_copy), to_s - from_s
        found = {}
        for window in windows:
            assert window.handler_idle is not None and window.produce.per_s is not None
            own = batches[window.broker_id]
            found[window.broker_id] = BrokerLoad(
                window.produce.per_s,
                own["batches"] / span_s,
                own["bytes"] / span_s,
                1.0 - window.handler_idle,
            )
        return found


class Turns(FixedLoadRun):
    """Original and copy in turns, on the same brokers."""

    def __init__(self, configs: Sequence[Configuration], logs: Logs) -> None:
        size = configs[0].workload.message_bytes[0]
        super().__init__(configs[0], FixedLoad(size, SCALE_UNITS, len(configs)))
        self._configs = configs
        self._logs = logs
        self.turns: list[Turn] = []

    def measure(self, run: RunState) -> None:
        with Rig.open(run.context, 0.0) as rig:
            for left, config in zip(range(self.load.trials, 0, -1), self._configs, strict=True):
                say("resume")
                time.sleep(SETTLED_S)
                windows, from_s, _ = watched(run.context.source, WINDOW_S, INTERVAL_S)
                say("pause")
                time.sleep(SENT_S)
                original = self._logs.loads(windows, from_s, from_s + WINDOW_S, is_copy=False)
                trial = rig.trial(self.load.message_bytes, SCALE_UNITS, "a copy", left, config)
                self.trials.append(trial)
                assert trial.is_valid, trial.reasons
                client = trial.evidence.client
                copy = self._logs.loads(
                    trial.evidence.brokers, client.start_s, client.end_s, is_copy=True
                )
                self.turns.append(Turn(original, copy))


def _seeds(parts: Sequence[Workload], seed: int) -> list[str]:
    """Overrides by which producers choose other partitions and times, as the original's do."""
    return [f"workload.mix.{part.name}.payload.seed={seed}" for part in parts]


def main(arguments: Sequence[str]) -> None:
    """Take the turns, and print their loads."""
    cluster, workload, out, turns, originals, folders, *given = arguments
    options = (*OPTIONS, *given)
    parts = load(cluster, workload, "default", options).workload.parts
    configs = [
        load(cluster, workload, "default", (*options, *_seeds(parts, 1 + turn)))
        for turn in range(int(turns))
    ]
    data = {int(broker): Path(folder) for broker, folder in json.loads(folders).items()}
    logs = Logs(configs[0].cluster.bootstrap_servers or (), data, originals.split(","))
    body = Turns(configs, logs)
    order = RunOrder(Path(out), reporter=RecordingReporter(), run_id="copy")
    assert execute(body, order) == 0
    say(json.dumps([asdict(each) for each in body.turns]))


if __name__ == "__main__":
    main(sys.argv[1:])
