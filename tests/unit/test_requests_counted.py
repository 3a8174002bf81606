"""Produce requests of a trial, and their columns in tables."""

from __future__ import annotations

import pytest

from metrics.trial.adding import total
from metrics.trial.client import BrokerAccount, Counts


def test_a_mean_needs_counted_requests() -> None:
    accounts = {1: BrokerAccount(requests=15), 2: BrokerAccount(requests=5)}
    engine = total([Counts(sent_records=90, by_broker=accounts), Counts(sent_records=10)])
    assert engine.records_per_request == pytest.approx(5.0)
    assert Counts(sent_records=90).records_per_request is None
