"""A stand-in for Jolokia's agent on loopback, with the beans of a recorded broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metrics.sources.bean_poller import parse_object_name
from tests.support.bean_answers import answers
from tests.support.served_http import Answer, Asked, served

BROKER = "4.1.2-combined-1"
_OF_JAVA: dict[str, dict[str, Any]] = {
    "java.lang:type=Memory": {"HeapMemoryUsage": {"used": 7, "max": 9, "init": 1}},
    "java.lang:type=Runtime": {"Uptime": 50_000, "InputArguments": ["-Xmx512m", "-Dkey=secret"]},
}


class Jolokia:
    """The state of the stand-in, which the test controls.

    Attributes:
        login: the expected Authorization header; None for any.
    """

    def __init__(self) -> None:
        self.beans: dict[str, dict[str, Any]] = {**answers(BROKER)[0], **_OF_JAVA}
        self.login: str | None = None
        self.asked = 0
        self.port = 0

    def body(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to a bulk request, as Jolokia gives them."""
        self.asked += 1
        return [self._answer(each["mbean"], each["attribute"]) for each in questions]

    def _answer(self, bean: str, attributes: list[str]) -> dict[str, Any]:
        found = {
            name: {each: own.get(each, f"ERROR: no attribute {each}") for each in attributes}
            for name, own in self.beans.items()
            if _fits(bean, name)
        }
        if not found:
            return {"status": 404, "error": f"javax.management.InstanceNotFoundException : {bean}"}
        return {"status": 200, "value": found if "*" in bean else next(iter(found.values()))}


def _fits(pattern: str, bean: str) -> bool:
    (domain, asked), (own, given) = parse_object_name(pattern), parse_object_name(bean)
    if domain != own or asked.keys() != given.keys():
        return False
    return all(value in ("*", given[key]) for key, value in asked.items())


@contextmanager
def served_jolokia() -> Iterator[Jolokia]:
    """A stand-in that answers until the end."""
    jolokia = Jolokia()

    def answer(asked: Asked) -> Answer:
        is_known = jolokia.login in (None, asked.login)
        text = json.dumps(jolokia.body(json.loads(asked.body))) if is_known else ""
        return Answer(text, 200 if is_known else 401)

    with served(answer) as jolokia.port:
        yield jolokia
