"""What several files of end-to-end tests look at."""

from __future__ import annotations

import pytest

from tests.support.finished_run import Run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One finished run for two goals, which its readers leave as it is."""
    return Run(tmp_path_factory.mktemp("run"))
