"""A real Prometheus server, which scrapes pages as an exporter makes them; it needs no brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from metrics.common.errors import ConfigError
from metrics.sources.hosts import host_sample as readings
from metrics.sources.hosts.node_exporter import ServedHosts
from metrics.sources.http_access import HttpAccess
from metrics.sources.sampler import Sampler
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import BrokerLabel
from metrics.sources.server.feed import STALE_INTERVALS, FeedSpec, ServerFeed
from metrics.sources.server.prometheus_server import PrometheusServerSource
from metrics.sources.source import poll_interval_of
from metrics.windows.broker import broker_windows
from tests.support.exporter_pages import BrokerState, page
from tests.support.processes import PATIENCE_S
from tests.support.prometheus_program import Job, RealPrometheus
from tests.support.served_http import Answer, served

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

INTERVAL_S = 1.0
KEY = "metrics.prometheus"
IDLE = {1: 0.8, 2: 0.35}
HOSTS = dict.fromkeys(IDLE, "127.0.0.1")
NODE_PAGE = 'node_cpu_seconds_total{{cpu="0",mode="idle"}} {0}\nnode_procs_running 3\n'


def broker_page(broker: int) -> str:
    state = BrokerState(at_s=time.time() // 1e5 * 1e5, node_id=broker)
    seconds = time.time() - state.at_s
    return page("confluent", state.later(seconds, IDLE[broker], round(1e3 * broker * seconds)))


def pages(shown: Mapping[str, Callable[[], str]]) -> AbstractContextManager[int]:
    """Serve pages by their paths; the port."""
    return served(lambda asked: Answer(shown[asked.path](), hangs_up=True))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """Scrapes two brokers, one of them in two clusters, and their host."""
    shown: dict[str, Callable[[], str]] = {
        "/1": lambda: broker_page(1),
        "/2": lambda: broker_page(2),
        "/host": lambda: NODE_PAGE.format(time.time()),
    }
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with pages(shown) as port:
        target = f"127.0.0.1:{port}"

        def job(name: str, path: str, **labels: str) -> Job:
            return Job(name, {target: {"__metrics_path__": path, **labels}}, INTERVAL_S)

        jobs = (
            job("kafka-1", "/1", pod="c-kafka-1", cluster="a"),
            job("kafka-2", "/2", pod="c-kafka-2", cluster="a"),
            job("kafka-3", "/2", pod="c-kafka-2", cluster="b"),
            job("node", "/host", cluster="a"),
        )
        with RealPrometheus(folder, *jobs) as running:
            assert running.has_scraped(len(jobs))
            yield running


def spec_of(selector: str = 'job=~"kafka-.*",cluster="a"', label: str = "pod") -> FeedSpec:
    return FeedSpec(selector, BrokerLabel(KEY, label, r"-(\d+)$"), HOSTS)


@contextmanager
def opened(server: RealPrometheus) -> Iterator[PrometheusServerSource]:
    api = ServerApi(server.url, HttpAccess(KEY), PATIENCE_S)
    with closing(PrometheusServerSource(ServerFeed(api, spec_of()), None, "4.1")) as source:
        source.open()
        yield source


def test_windows_have_every_scrape_and_the_idle_time_of_the_pages(server: RealPrometheus) -> None:
    with opened(server) as source:
        for node in source.nodes.values():
            assert node.interval_s == pytest.approx(1.0, abs=0.05)
            assert len(node.series) > 40
        began_s = time.time()
        with Sampler(source, poll_interval_of(source, INTERVAL_S)) as sampler:
            sampler.wait_past(began_s + 12.0, PATIENCE_S)
            samples = sampler.stop()
        history = source.history("handler_idle_ns", began_s, began_s + 10.0, 2.0)
    for window in broker_windows(samples, IDLE, began_s + 1.0, began_s + 11.0, INTERVAL_S):
        idle = IDLE[window.broker_id]
        assert window.samples_missed == 0
        assert window.handler_idle == pytest.approx(idle, abs=0.02)
        values = history[window.broker_id]
        grown_s = (values[-1][1] - values[0][1]) / 1e9
        assert grown_s / (values[-1][0] - values[0][0]) == pytest.approx(idle, abs=0.1)


def test_hosts_are_read(server: RealPrometheus) -> None:
    label = BrokerLabel("metrics.host.prometheus", is_shared=True)
    api = ServerApi(server.url, HttpAccess(KEY), PATIENCE_S)
    spec = FeedSpec('job="node"', label, HOSTS, "the brokers' hosts")
    with closing(ServedHosts(ServerFeed(api, spec)).open()) as hosts:
        assert hosts.brokers == {"127.0.0.1": (1, 2)}
        first, last = hosts.sample_all()[-1], hosts.sample_all()[-1]
    idle = f"{readings.CPU_S}:idle"
    passed_s = last.values[idle] - first.values[idle]
    assert passed_s == pytest.approx(last.at_s - first.at_s, abs=0.1)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (spec_of('job="kafak"'), "the server's jobs are kafka-1, kafka-2, kafka-3, node"),
        (spec_of(label="broker"), "their labels are cluster, instance, job, pod; name"),
        (spec_of('job=~"kafka-.*"'), "cluster is a and b"),
        (spec_of('job="node",cluster="a"', "cluster"), "that of node_exporter"),
        (spec_of("job=kafka"), "the server refuses the query"),
        (spec_of('job=~"kafka-[13]",cluster="a"'), "show no broker 2"),
    ],
    ids=["no series", "no label", "two clusters", "node_exporter", "malformed", "no broker 2"],
)
def test_a_wrong_selection_is_refused(spec: FeedSpec, words: str, server: RealPrometheus) -> None:
    api = ServerApi(server.url, HttpAccess(KEY), PATIENCE_S)
    source = PrometheusServerSource(ServerFeed(api, spec), None, "4.1")
    with closing(source), pytest.raises(ConfigError) as error:
        source.open()
    assert words in str(error.value)


def test_a_server_that_stood_still_shows_no_old_number_as_new(server: RealPrometheus) -> None:
    with opened(server) as source:
        before = {each.broker_id: each.at_s for each in source.sample_all()}
        server.pause()
        try:
            time.sleep(STALE_INTERVALS * INTERVAL_S)  # the server's own time; it does not answer
        finally:
            server.resume()
        called_s = time.time()
        after = source.sample_all()
    newest = {each.broker_id: each for each in after}
    for broker, sample in newest.items():
        assert sample.error is None
        assert sample.at_s >= called_s > before[broker]
    times_s = [each.at_s for each in after if each.broker_id == 1]
    assert times_s == sorted(set(times_s))
