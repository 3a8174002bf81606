"""The finished run that several end-to-end tests examine."""

from __future__ import annotations

import pytest

from tests.support.finished_run import Run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run for two goals, which tests only read."""
    return Run(tmp_path_factory.mktemp("run"))
