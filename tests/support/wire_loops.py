"""The event loop of a task's producers against scripted brokers, in simulated time."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from jobs.engine.batches.pool import BatchPool
from jobs.engine.network.transport import PlainTransport
from jobs.engine.producing.loop import WireLoop
from metrics.common.errors import RedlineError
from tests.support.patterns import plan
from tests.support.scripted_broker import Script, ScriptedBroker
from tests.support.scripted_log import Log
from tests.support.simulated_time import SimulatedTime

EPOCH_S = 1_700_000_000.0
"""Any offset between the simulated time and the seconds since the epoch [s]."""

PARTITIONS = 4


class Cluster:
    """Brokers 1, 2, … with these scripts and one log; broker 1 leads the partitions at first.

    Attributes:
        is_down: whether lost connections cannot be opened again.
        drain_s: time from the window's end to the trial's [s].
    """

    def __init__(self, *scripts: Script) -> None:
        self.log = Log()
        self.time = SimulatedTime()
        self.leaders = dict.fromkeys(range(PARTITIONS), 1)
        self.brokers = {
            number: ScriptedBroker(script, self.leaders, self.log, self.time)
            for number, script in enumerate(scripts, 1)
        }
        self.is_down = False
        self.drain_s = 0.0

    def run(self, rate: float = 2_000.0, **options: Any) -> WireLoop:
        """Run one producer with messages of 100 B until its last answer.

        Args:
            options: fields of `tests.support.patterns.plan`.
        """
        trial = plan(
            leaders=(1,) * PARTITIONS,
            brokers={number: ("scripted", number) for number in self.brokers},
            rate_records_per_s=rate,
            **({"pool_bytes": 200_000, "linger_ms": 2.0} | options),
        )
        pattern, client_id = trial.pattern.producer, trial.producer_name(0)
        with contextlib.ExitStack() as stack:
            for broker in self.brokers.values():
                stack.enter_context(broker)
            stack.enter_context(self.time.passing())
            transports = {
                (client_id, number): self._transport(broker, broker.client_socket)
                for number, broker in self.brokers.items()
            }
            for transport in transports.values():
                stack.callback(transport.close)
            pool, clock = BatchPool(pattern), self.time.clock
            connector: Any = SimpleNamespace(open=self._open)
            loop = WireLoop(trial, 0, transports, pool, connector, clock)
            if pattern.options.enable_idempotence:
                loop.register()
            loop.run(self.time.now_s + 0.05, EPOCH_S)
            self.drain_s = self.time.now_s - loop.account.window.end_s
        return loop

    def _open(self, wanted: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], PlainTransport]:
        if self.is_down:
            raise RedlineError("connection refused")
        brokers = self.brokers
        return {key: self._transport(brokers[key[1]], brokers[key[1]].connect()) for key in wanted}

    def _transport(self, broker: ScriptedBroker, sock: socket.socket) -> PlainTransport:
        return PlainTransport(sock, self.time.now_s + 0.5 * broker.session_s)


def run_loop(
    script: Script, rate: float = 2_000.0, **options: Any
) -> tuple[WireLoop, ScriptedBroker]:
    """Run one producer against one broker that opens no connection again, without retries."""
    cluster = Cluster(script)
    cluster.is_down = True
    loop = cluster.run(rate, **({"drain_timeout_s": 1.0, "retries": 0} | options))
    return loop, cluster.brokers[1]
