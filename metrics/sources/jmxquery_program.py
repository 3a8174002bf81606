"""The program of `jmxquery`, with a filter for what it reads and a password that nobody sees.

The package hands the password to its program as an argument, which lists of processes show,
and has no way to give its JVM options. Java's launcher also reads arguments from a file, so
here the same program gets the same arguments from a file that only its owner can read,
deleted when the program has ended.
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
"""What Java reads of the environment; the rest of ours may hold secrets."""

_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Of a JVM that lives for a second: what Java's second compiler makes is never used."""


def ask(
    connection: jmxquery.JMXConnection,
    queries: Sequence[jmxquery.JMXQuery],
    access: JmxAccess | None,
    timeout_s: float,
) -> list[jmxquery.JMXQuery]:
    """What `connection.query` answers, asked with a user and a password where JMX wants them.

    Raises:
        subprocess.CalledProcessError: the program failed; `stdout` says why.
        subprocess.TimeoutExpired: no answer within `timeout_s` [s].
        ValueError: its answer is cut off.
    """
    asked = "".join(f"{query.to_query_string()};" for query in queries)
    arguments = [_QUICK_COMPILER, f"-Djdk.serialFilter={ANSWERS}", "-jar", jmxquery.JAR_PATH]
    arguments += ["-url", connection.connection_uri, "-json"]
    if access is not None:
        arguments += ["-u", access.username or "", "-p", access.password or ""]
    arguments += ["-q", asked]
    descriptor, name = tempfile.mkstemp(prefix="redline-jmx-")  # readable by its owner only
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            # Quoted as the launcher reads it, which is as JSON does but for non-ASCII.
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
