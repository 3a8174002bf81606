"""Metrics for Prometheus and messages to webhooks while a run lasts."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families
from syrupy.assertion import SnapshotAssertion

from jobs.console.events import PhaseStarted, PlanShown, PointFinished, RunStarted, TrialProgress
from jobs.live.followers import FollowedReporter, reporter_of
from jobs.live.messages import Messages
from jobs.live.metrics import LiveMetrics
from jobs.options import ListenAddress
from metrics.common.errors import ConfigError, GuardStopError, RegressionError
from metrics.features.plan.exports import HEADROOM_SERIES
from tests.support.commands import ROOT
from tests.support.evidence import broker
from tests.support.processes import PATIENCE_S
from tests.support.report_rows import summary_of_sizes
from tests.support.run_events import FINISHED, PLAN, STARTED

POINT = PointFinished(summary_of_sizes([1000]).boundaries[0], "")
BEGUN = RunStarted("20261123-070000-ab12", PLAN)


def scraped(metrics: LiveMetrics) -> dict[tuple[str, str], float]:
    """(name, value of the first label) → value, as Prometheus reads it."""
    host, port = metrics.address
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def metrics() -> Iterator[LiveMetrics]:
    made = LiveMetrics(("127.0.0.1", 0))
    yield made
    made.end(None)


def test_prometheus_reads_the_state_of_a_run(metrics: LiveMetrics) -> None:
    metrics.follow(BEGUN)
    metrics.follow(PhaseStarted("starting Spark"))
    found = scraped(metrics)
    assert found["redline_run_info", PLAN.cluster] == 1
    assert found["redline_phase_info", "starting Spark"] == 1
    assert found["redline_time_left_seconds", ""] == PLAN.duration_s
    assert found["redline_trials_total", "SUSTAINED"] == 0
    metrics.follow(STARTED)
    metrics.follow(TrialProgress("measuring", 3.0, 25.5, replace(broker(2), handler_idle=0.4)))
    found = scraped(metrics)
    assert ("redline_phase_info", "starting Spark") not in found
    assert found["redline_load", "np"] == 128
    assert found["redline_offered_bytes_per_second", ""] == 128 * 25.0 * 10_000
    assert found["redline_achieved_bytes_per_second", ""] == 25.5e6
    assert found["redline_request_handler_idle_ratio", "2"] == 0.4
    metrics.follow(FINISHED)
    metrics.follow(POINT)
    found = scraped(metrics)
    assert found["redline_trials_total", FINISHED.trial.verdict.value] == 1
    assert found["redline_trials_left", ""] == FINISHED.trials_left
    assert (
        found["redline_limit_bytes_per_second", POINT.boundary.goal]
        == POINT.boundary.mb_per_s * 1e6
    )


def test_the_dashboard_and_the_page_have_the_existing_metrics(metrics: LiveMetrics) -> None:
    names = {
        each.name + ("_total" if each.type == "counter" else "")
        for each in metrics.registry.collect()
    }
    dashboard = json.loads((ROOT / "conf" / "grafana" / "redline.json").read_text())
    exprs = {target["expr"] for panel in dashboard["panels"] for target in panel["targets"]}
    recorded = {each for each in exprs if HEADROOM_SERIES in each}  # by rules of `redline export`
    assert len(recorded) == 2
    for panel in dashboard["panels"][-2:]:  # a line at 1, and what to do without a series
        drawn = panel["fieldConfig"]["defaults"]
        assert [each["value"] for each in drawn["thresholds"]["steps"]] == [None, 1.0, 1.5]
        assert "redline export --as alerts" in drawn["noValue"]
    shown = exprs - recorded
    assert shown <= names
    assert names - shown == {"redline_trial_number", "redline_message_bytes"}
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(redline_\w+)`", page)) == names


def test_a_port_is_on_loopback_unless_a_host_is_given_and_named_where_it_is_in_use() -> None:
    listening = ListenAddress()
    assert listening.convert("9464", None, None) == ("127.0.0.1", 9464)
    assert listening.convert("0.0.0.0:9464", None, None) == ("0.0.0.0", 9464)
    for wrong in ("x", "9464x", "70000", ""):
        with pytest.raises(click.UsageError, match="is not a port"):
            listening.convert(wrong, None, None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--metrics-port 127.0.0.1:{port} "):
            LiveMetrics(("127.0.0.1", port))


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The address of a webhook in apprise's form, and the messages that it got."""
    got: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"json://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (None, "done"),
        (RegressionError("limit-1kB fell by 12 %"), "regression"),
        (GuardStopError("a disk is full"), "stopped by a guard"),
        (ValueError("odd"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_webhook_gets_a_message_at_the_start_and_at_the_end(
    hook: tuple[str, list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    title: str,
) -> None:
    address, got = hook
    monkeypatch.setenv("HOOK", address)
    messages = Messages(("env:HOOK",))
    for event in (BEGUN, POINT):
        messages.follow(event)
    messages.end(error)
    begun, ended = got
    assert begun["title"] == "redline 20261123-070000-ab12 on testbed-3: begins"
    assert "forecast: about 12 trials" in begun["message"]
    assert ended["title"] == f"redline 20261123-070000-ab12 on testbed-3: {title}"
    assert "1 kB: 14.5 MB/s, 14,500 messages/s" in ended["message"]
    assert str(error or "") in ended["message"]


DRIP = """
import socket, sys, threading
from jobs.live import messages
messages.PATIENCE_S = 0.5
server = socket.create_server(("127.0.0.1", 0))
def drip():
    while True:
        peer, _ = server.accept()
        peer.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        threading.Thread(target=fill, args=(peer,), daemon=True).start()
def fill(peer):
    while not never.wait(0.1):
        peer.sendall(b"x")
never = threading.Event()
threading.Thread(target=drip, daemon=True).start()
import os
os.environ["HOOK"] = " ".join(["json://127.0.0.1:%d/secret" % server.getsockname()[1]] * 2)
sent = messages.Messages(("env:HOOK",))
sent._run = "r"
sent._send("begins", "b")
sent.end(None)
print("ended")
"""


def test_an_answer_without_end_does_not_delay_the_exit() -> None:
    """Two addresses, as apprise sends to several in a pool whose threads the exit awaits."""
    program = [sys.executable, "-c", DRIP]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_an_answer_without_end_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of messages may last as long as the run."""
    taken, pauses = 0, threading.Event()

    def flood(server: socket.socket) -> None:
        nonlocal taken
        peer, _ = server.accept()
        with peer, suppress(OSError):
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while taken < 2**28:
                taken += peer.send(b"x" * 65_536)
        pauses.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=flood, args=(server,), daemon=True)
        thread.start()
        monkeypatch.setenv("HOOK", f"json://127.0.0.1:{server.getsockname()[1]}/secret")
        sent = Messages(("env:HOOK",))
        sent._run = "r"
        sent.end(None)
        assert pauses.wait(30.0)
        thread.join()
    assert taken < 2**26, "more than the answer and the buffers of the sockets"


def test_a_run_that_never_began_sends_no_message(
    hook: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", hook[0])
    with reporter_of(notify_from=["env:HOOK"]) as reporter:
        assert isinstance(reporter, FollowedReporter)
        reporter.report(PlanShown(PLAN))
    assert hook[1] == []


def test_addresses_are_references_and_wrong_ones_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ConfigError, match="--notify is env:NOBODY, but the environment variable"):
        Messages(("env:NOBODY",))
    monkeypatch.setenv("HOOK", "json://127.0.0.1/ok nonsense://hunter2")
    with pytest.raises(ConfigError, match=r"env:HOOK: .*address 2") as refused:
        Messages(("env:HOOK",))
    assert "hunter2" not in str(refused.value)
    assert str(refused.value) == snapshot


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jobs.live.metrics", None)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    wanted = pytest.raises(ConfigError, match=r"pip install 'kafka-redline\[live\]'")
    with wanted, reporter_of(("127.0.0.1", 0)):
        pass
