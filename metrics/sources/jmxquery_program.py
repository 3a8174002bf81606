"""The program of `jmxquery`, with a filter of classes and a password outside the command line.

The package passes the password to its program as an argument, which lists of processes show, and
cannot pass options to its JVM. Java's launcher also reads arguments from a file. So this module
passes the same arguments in a file that only its owner can read, and deletes it afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jmxquery

from metrics.sources.access import ANSWERS, JmxAccess

_OF_JAVA = (
    "HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LANG", "LC_ALL", "LC_CTYPE",
    "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ",
)  # fmt: skip
"""The environment variables that Java reads; all others may contain secrets."""

_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Turns Java's second compiler off, whose code a JVM of one second never uses."""


def ask(
    connection: jmxquery.JMXConnection,
    queries: Sequence[jmxquery.JMXQuery],
    access: JmxAccess | None,
    timeout_s: float,
) -> list[jmxquery.JMXQuery]:
    """Run queries as `connection.query` does, with a user and a password where JMX requires them.

    Raises:
        subprocess.CalledProcessError: the program failed; `stdout` has the reason.
        subprocess.TimeoutExpired: no answer within `timeout_s` [s].
        ValueError: the answer is cut off.
    """
    query_text = "".join(f"{query.to_query_string()};" for query in queries)
    arguments = [_QUICK_COMPILER, f"-Djdk.serialFilter={ANSWERS}", "-jar", jmxquery.JAR_PATH]
    arguments += ["-url", connection.connection_uri, "-json"]
    if access is not None:
        arguments += ["-u", access.username or "", "-p", access.password or ""]
    arguments += ["-q", query_text]
    descriptor, name = tempfile.mkstemp(prefix="redline-jmx-")  # readable by its owner only
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            # The launcher's quotes are those of JSON, except for non-ASCII characters.
            stream.write("\n".join(json.dumps(each, ensure_ascii=False) for each in arguments))
        command = [connection.java_path, f"@{name}"]
        answer = subprocess.run(
            command, env=_environment(), capture_output=True, timeout=timeout_s, check=True
        )
    finally:
        Path(name).unlink()
    return [
        jmxquery.JMXQuery(
            row["mBeanName"], row["attribute"], row.get("attributeKey"), row.get("value")
        )
        for row in json.loads(answer.stdout)
    ]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _OF_JAVA if name in os.environ}
