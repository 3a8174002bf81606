"""What is refused before a cluster is connected to."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from jobs.brokers.cluster import open_cluster
from jobs.config import Cluster, Jmx, Security
from jobs.events import RecordingReporter
from search.errors import ConfigError


def test_tls_is_refused_in_words_until_the_producers_speak_it() -> None:
    cluster = Cluster(
        name="secure",
        bootstrap_servers=("127.0.0.1:9093",),
        jmx=Jmx(port=9999),
        security=Security(protocol="SSL"),
    )
    with ExitStack() as stack, pytest.raises(ConfigError, match="do not speak TLS yet"):
        open_cluster(cluster, RecordingReporter(), stack)
