"""The event loop of a task's producers against a scripted broker, in simulated time."""

from __future__ import annotations

from typing import Any

from jobs.engine.batches.pool import BatchPool
from jobs.engine.network.transport import PlainTransport
from jobs.engine.producing.loop import WireLoop
from metrics.common.errors import RedlineError
from tests.support.patterns import plan
from tests.support.scripted_broker import Script, ScriptedBroker

EPOCH_S = 1_700_000_000.0
"""Any offset between the simulated time and the seconds since the epoch [s]."""


def _refused(_wanted: object) -> dict[tuple[str, int], PlainTransport]:
    raise RedlineError("connection refused")


def run_loop(
    script: Script, rate: float = 2_000.0, **options: Any
) -> tuple[WireLoop, ScriptedBroker]:
    """Run the loop of one producer with messages of 100 B until its last answer.

    Args:
        rate: rate of the producer [records/s].
        options: fields of `tests.support.patterns.plan`.
    """
    fields: dict[str, Any] = {"pool_bytes": 200_000, "linger_ms": 2.0, "retries": 0}
    trial = plan(rate_records_per_s=rate, drain_timeout_s=1.0, **(fields | options))
    with ScriptedBroker(script) as broker, broker.time.passing() as time:
        transports = {(trial.producer_name(0), 7): PlainTransport(broker.client_socket)}
        pool = BatchPool(trial.pattern.producer)
        loop = WireLoop(trial, 0, transports, pool, time.clock, opener=_refused)
        with broker.client_socket:
            loop.run(time.now_s + 0.05, EPOCH_S)
    return loop, broker
