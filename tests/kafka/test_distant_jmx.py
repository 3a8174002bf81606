"""JMX of a broker that is far from the driver: fewer round trips in a row, and the same calls."""

from __future__ import annotations

from contextlib import closing

import pytest

from metrics.sources.beans import POLL_MS, Role, beans_for, readings_of
from metrics.sources.driver_jvm import DriverJvmSource
from metrics.sources.first_polls import FirstPolls, least_interval_s
from metrics.traffic.pattern import SAMPLES_MIN
from tests.support.bare_jvm import bare_jvm
from tests.support.simulated_jmx import VERSION, beans_of_a_broker, delayed_jmx

pytestmark = pytest.mark.together

POLLS = 3
QUICK_S = 1.0
"""Interval between two samples of the workload `quick` [s]."""


@pytest.mark.parametrize("round_trip_s", [0.06, pytest.param(0.025, marks=pytest.mark.long)])
def test_a_distant_broker_is_sampled_within_the_interval(round_trip_s: float) -> None:
    with (
        delayed_jmx(1, round_trip_s) as brokers,
        bare_jvm() as (jvm, _),
        closing(DriverJvmSource(jvm, brokers.endpoints, 10.0)) as source,
    ):
        source.open()
        before = brokers.calls()
        samples = [source.sample_all()[0] for _ in range(POLLS)]
        calls = brokers.calls() - before
    of_kafka = {name for name, *_ in beans_of_a_broker() if name.startswith("kafka.")}
    read = {name for name in of_kafka if "app-info" not in name}
    assert calls == POLLS * len(read), "one call for each bean, whatever the distance"
    wanted = {reading.name for reading in readings_of(beans_for(VERSION, (Role.BROKER,)))}
    for sample in samples:
        assert sample.error is None
        assert wanted <= {name.partition(":")[0] for name in sample.values}
    # A poll whose calls were made one after another would take this long at least.
    in_a_row_s = len(read) * round_trip_s
    fastest_s = min(sample.values[POLL_MS] for sample in samples) / 1e3
    assert round_trip_s < fastest_s < in_a_row_s / 3
    assert least_interval_s(FirstPolls(nodes_s=(fastest_s,)), 10.0, SAMPLES_MIN) <= QUICK_S
