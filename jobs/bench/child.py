"""The child process of one repeat: told by its standard input what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from jobs.bench import consumers, producers
from jobs.bench.task import Task
from search.errors import RedlineError

WORK: Mapping[tuple[str, str], Callable[[Task], None]] = {
    ("producer", "wire"): producers.wire,
    ("producer", "librdkafka"): producers.librdkafka,
    ("producer", "kafka-python"): producers.kafka_python,
    ("producer", "plain socket"): producers.plain_socket,
    ("consumer", "wire"): consumers.wire,
    ("consumer", "librdkafka"): consumers.librdkafka,
    ("consumer", "kafka-python"): consumers.kafka_python,
    ("consumer", "plain socket"): consumers.plain_socket,
}
"""Role and client → what the child does."""


def main() -> int:
    """Do the task; returns the exit code."""
    task = Task.from_text(sys.stdin.readline())
    try:
        WORK[task.role, task.client](task)
    except RedlineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
