"""Recorded answers of the beans of real idle brokers of `jobs.testbed`.

A file of tests/data/bean-answers has two answers of one process, some 10 s apart: object name →
attribute → value, for the beans of roles, idle time and the controller's requests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metrics.sources.bean_poller import BeanValue, match_values, node_info, readings_for
from metrics.sources.beans import PROBE, with_own_idle
from metrics.sources.sample import BrokerSample
from metrics.sources.source import JmxEndpoint, NodeInfo

FOLDER = Path(__file__).parents[1] / "data" / "bean-answers"
START_S = 1_000_000.0


def answers(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two answers of a recording, such as `3.9.2-zookeeper-1`."""
    first, last = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return first, last


def node_of(answer: dict[str, Any]) -> NodeInfo:
    values = {name: str(value) for name, value in match_values(PROBE, _rows(answer)).items()}
    return node_info(JmxEndpoint(1, "localhost", 9999), values)


def readings_in(answer: dict[str, Any]) -> dict[str, float]:
    """The readings of a sample, derived readings included."""
    found = match_values(readings_for(node_of(answer)), _rows(answer))
    return with_own_idle({name: float(value) for name, value in found.items()}, START_S)


def recorded_samples(name: str) -> list[BrokerSample]:
    first, last = map(readings_in, answers(name))
    apart_s = (last["uptime_ms"] - first["uptime_ms"]) / 1e3
    return [BrokerSample(1, START_S, first), BrokerSample(1, START_S + apart_s, last)]


def _rows(answer: dict[str, Any]) -> list[BeanValue]:
    return [
        BeanValue(bean, attribute, value)
        for bean, attributes in answer.items()
        for attribute, value in attributes.items()
    ]
