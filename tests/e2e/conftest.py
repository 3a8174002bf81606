"""What several end-to-end tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.finished_run import Run
from tests.support.neighbors import forget_refused
from tests.support.wheel import built_wheel, python_without_project


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run for two goals, which tests only read."""
    return Run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages, but without this project."""
    return python_without_project(tmp_path_factory.mktemp("python"))


@pytest.fixture
def quiet_neighbors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Records of kafka-python's log hold the sockets of connections that brokers refused."""
    with caplog.at_level(logging.CRITICAL, logger="kafka"):
        yield
    forget_refused()
