"""The brokers' metrics from Jolokia agents, one request for all beans of a broker."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from metrics.common.errors import ConfigError
from metrics.sources.bean_poller import BeanPoller, BeanValue, PollError
from metrics.sources.extension import SourceRequest
from metrics.sources.source import Endpoint

_OPTIONS = {"port", "path", "deadline_s", "username_from", "password_from"}
_FAILED = "ERROR: "
"""What stands before the error of a single attribute, with `ignoreErrors`."""


class JolokiaSource(BeanPoller[Endpoint]):
    """Jolokia on the same port of each broker's host."""

    api = 1
    name = "jolokia"

    def __init__(self, request: SourceRequest) -> None:
        options = request.options
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise ConfigError(
                f"metrics.extension.options has {unknown[0]}; expected some of "
                f"{', '.join(sorted(_OPTIONS))}; remove it"
            )
        port = options.get("port", "8778")
        nodes = [Endpoint.parse(each, f"{host}:{port}") for each, host in request.hosts.items()]
        super().__init__(nodes, float(options.get("deadline_s", "5")))
        self._path = options.get("path", "/jolokia/")
        self._headers = {"Content-Type": "application/json"}
        if "password_from" in options:
            login = f"{request.secret('username_from')}:{request.secret('password_from')}"
            self._headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"

    def unreachable(self, endpoint: Endpoint, error: str) -> ConfigError:
        """The error for a broker without an answer."""
        return ConfigError(
            f"Jolokia of broker {endpoint.node_id} does not answer at {endpoint.address}: {error}; "
            "expected its agent there; start the broker with it, or correct "
            "metrics.extension.options.port"
        )

    def poll(
        self, endpoint: Endpoint, beans: Mapping[str, Sequence[str]], timeout_s: float
    ) -> Iterator[BeanValue]:
        """All beans of a broker in one request."""
        asked = [
            {
                "type": "read",
                "mbean": name,
                "attribute": list(attributes),
                "config": {"ignoreErrors": "true"},
            }
            for name, attributes in beans.items()
        ]
        for question, answer in zip(asked, self._ask(endpoint, asked, timeout_s), strict=True):
            if answer.get("status") == 200:
                yield from _values(str(question["mbean"]), answer["value"])

    def _ask(self, endpoint: Endpoint, asked: Any, timeout_s: float) -> list[dict[str, Any]]:
        request = urllib.request.Request(
            f"http://{endpoint.address}{self._path}", json.dumps(asked).encode(), self._headers
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                found = json.load(answer)
        except (OSError, ValueError) as error:  # unreachable, too late, or not JSON
            raise PollError(str(getattr(error, "reason", error))) from error
        if not isinstance(found, list):
            raise PollError(f"the answer is {str(found)[:80]}; expected a list")
        return found


def _values(bean: str, value: Mapping[str, Any]) -> Iterator[BeanValue]:
    if "*" in bean:
        for name, attributes in value.items():
            yield from _values(name, attributes)
        return
    for attribute, each in value.items():
        if isinstance(each, Mapping):
            yield from (BeanValue(bean, attribute, item, key) for key, item in each.items())
        elif isinstance(each, list):
            yield BeanValue(bean, attribute, f"[{', '.join(map(str, each))}]")
        elif not str(each).startswith(_FAILED):
            yield BeanValue(bean, attribute, each)
