"""Produce requests of a trial, counted where they are handed to a socket."""

from __future__ import annotations

import pytest

from jobs.engine.producing.account import Account
from jobs.engine.task.window import Window
from metrics.trial.adding import total
from metrics.trial.counts import Counts


def test_requests_of_the_window_are_counted_and_others_are_not() -> None:
    account = Account(Window(10.0, 20.0), 0.001)
    for now in (9.9, 10.0, 15.0, 20.1):
        account.requested(now)
    assert account.counts.produce_requests == 2


def test_a_mean_is_told_only_where_requests_were_counted() -> None:
    engine = total([Counts(sent_records=90, produce_requests=20), Counts(sent_records=10)])
    assert engine.records_per_request == pytest.approx(5.0)
    assert Counts(sent_records=90).records_per_request is None
