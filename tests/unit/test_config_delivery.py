"""The options of delivery, and the combinations that brokers do not support."""

from __future__ import annotations

import pytest

from jobs.config import load_workload
from metrics.common.errors import ConfigError


def test_the_options_reach_the_producers() -> None:
    given = {
        "acks": "all",
        "retries": "7",
        "retry_backoff_ms": "20",
        "retry_backoff_max_ms": "300",
        "delivery_timeout_ms": "60000",
        "enable_idempotence": "true",
        "send_buffer_bytes": "131072",
        "receive_buffer_bytes": "32768",
    }
    options = [f"workload.producer.{key}={value}" for key, value in given.items()]
    reached = load_workload("demo", options).pattern(1_000).producer.options
    assert (reached.acks_code, reached.retries, reached.enable_idempotence) == (-1, 7, True)
    assert (reached.retry_backoff_ms, reached.retry_backoff_max_ms) == (20.0, 300.0)
    assert reached.delivery_timeout_ms == 60_000
    assert (reached.send_buffer_bytes, reached.receive_buffer_bytes) == (131_072, 32_768)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["enable_idempotence=true"], "with acks 1; expected acks all"),
        (["enable_idempotence=true", "acks=all", "max_in_flight=6"], "with max_in_flight 6"),
        (["enable_idempotence=true", "acks=all", "retries=0"], "with retries 0"),
        (["enable_idempotence=true", "acks=0", "max_in_flight=9"], "acks 0 and max_in_flight 9"),
        (["delivery_timeout_ms=30000"], "linger_ms and request_timeout_ms together, 30"),
    ],
)
def test_combinations_that_cannot_work_are_refused(options: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_workload("demo", [f"workload.producer.{option}" for option in options])
    assert words in str(caught.value)
