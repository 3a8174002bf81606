"""The child process of one repeat of another client; it reads its task from standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from metrics.common.errors import RedlineError
from tests.bench import consumers, java, producers, requests
from tests.bench.rows import JAVA, KERNEL
from tests.bench.task import Task, die_with_parent

WORK: Mapping[tuple[str, str], Callable[[Task], None]] = {
    ("producer", "librdkafka"): producers.librdkafka,
    ("producer", "kafka-python"): producers.kafka_python,
    ("producer", JAVA): java.producer,
    ("producer", "plain socket"): producers.plain_socket,
    ("producer", KERNEL): requests.kernel,
    ("consumer", "librdkafka"): consumers.librdkafka,
    ("consumer", "kafka-python"): consumers.kafka_python,
    ("consumer", JAVA): java.consumer,
    ("consumer", "plain socket"): consumers.plain_socket,
}
"""Role and client → the function that the child runs."""


def main() -> int:
    """Do the task, and return the exit code."""
    die_with_parent()
    task = Task.from_text(sys.stdin.readline())
    try:
        WORK[task.role, task.client](task)
    except RedlineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
