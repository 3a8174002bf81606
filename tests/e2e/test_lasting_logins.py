"""A command whose load outlasts the tokens of its logins many times."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.config.yaml_file import parse_map, yaml_text
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_text, start
from jobs.testbed.listeners import USER, SecurityFiles, unsecured_token
from tests.support.commands import RunningCommand
from tests.support.search_impact import beans_at
from tests.support.token_server import CLIENT, SECRET, TokenServer, token_server

log = logging.getLogger(__name__)

MINUTES = float(os.environ.get("REDLINE_TEST_MINUTES", "20"))
"""Duration of the load; another one for a look by hand."""
TOKEN_S = 60.0
OVERRIDES = {
    "security": "SASL_SSL",
    "jmx_secured": False,
    # As brokers end the sessions of tokens only where they end sessions at all.
    "listener.name.sasl_ssl.oauthbearer.connections.max.reauth.ms": 3_600_000,
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(int(60 * MINUTES) + 400)]


def brief(_number: int) -> dict[str, object]:
    """A token that ends after `TOKEN_S`."""
    token = unsecured_token(USER, time.time(), TOKEN_S)
    return {"access_token": token, "expires_in": TOKEN_S}


def by_token(testbed: Testbed, server: TokenServer) -> str:
    """The text of the testbed's cluster file, with a login by tokens of the server."""
    cluster: dict[str, Any] = parse_map(cluster_text(testbed.folder, testbed.state), "c").data
    cluster["security"] = {
        "protocol": "SASL_SSL",
        "cafile": str(SecurityFiles(testbed.folder).ca),
        "sasl_mechanism": "OAUTHBEARER",
        "oauth_token_url": server.url,
        "oauth_client_id_from": "env:TEST_CLIENT",
        "oauth_client_secret_from": "env:TEST_SECRET",
    }
    return yaml_text(cluster)


def failed_logins(testbed: Testbed) -> dict[str, float]:
    """The brokers' counts of failed logins and of connections closed as their session had ended."""
    names = (
        "expired-connections-killed-count",
        "failed-authentication-total",
        "failed-reauthentication-total",
    )
    found = dict.fromkeys(names, 0.0)
    for place in testbed.jmx_endpoints.values():
        asked = (f"kafka.server:type=socket-server-metrics,*/{each}" for each in names)
        for answer in beans_at(place, *asked):
            found[str(answer.attribute)] += float(answer.value)
    return found


def test_a_load_outlasts_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_CLIENT", CLIENT)
    monkeypatch.setenv("TEST_SECRET", SECRET)
    bed = start("secured", brokers=2, root=tmp_path / "bed", name="lasting", overrides=OVERRIDES)
    with bed as testbed, token_server(brief) as server:
        (tmp_path / "cluster.yaml").write_text(by_token(testbed, server))
        command = RunningCommand(
            "traffic", "--cluster", str(tmp_path / "cluster.yaml"), "--np", "4",
            "--workload", "1kB", "--duration", f"{MINUTES:g}m", "--yes",
            "--out", str(tmp_path / "out"), "--set=cluster.warm_up_max_s=0",
            "--set=workload.topic.replication_factor=1", "--set=workload.consumers.groups=1",
            "--set=workload.producer.rate_bytes_per_s=100000", "--set=workload.trial.measure_s=15",
            # On a busy machine, too: the test is about logins.
            "--set=goal.indicators.request_handler_idle_min=0.01",
            "--set=goal.indicators.achieved_min=0.5",
            "--set=goal.indicators.consumer_lag_growth_max=1",
            "--set=goal.search.overload_max_s=60",
            folder=tmp_path,
        )  # fmt: skip
        with command:
            code = command.wait(60 * MINUTES + 300)
        failed = failed_logins(testbed)
        given = server.given
    assert code == 0, command.text[-3_000:]
    trials = DeltaTable(tmp_path / "out" / "tables" / "trials").to_pyarrow_table().to_pylist()
    log.warning("%s tokens; lateness %s ms", given, [each["lateness_p99_ms"] for each in trials])
    assert len(trials) == 4 * MINUTES
    assert set(failed.values()) == {0.0}, failed
    assert sum(each["failed_total"] + each["retried_records"] for each in trials) == 0
    assert sum(each["acked_total"] for each in trials) > 0
    assert given > MINUTES * 60 / TOKEN_S
