"""What several end-to-end tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.finished_run import Run
from tests.support.neighbors import forget_refused


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run for two goals, which tests only read."""
    return Run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def quiet_neighbors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Records of kafka-python's log hold the sockets of connections that brokers refused."""
    with caplog.at_level(logging.CRITICAL, logger="kafka"):
        yield
    forget_refused()
