"""The program of `jmxquery` with a password that no list of processes shows.

The package hands the password to its program as an argument. Java's launcher also reads
arguments from a file, so here the same program gets the same arguments from a file that
only its owner can read, deleted when the program has ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jmxquery

from metrics.sources.access import JmxAccess


def query_secretly(
    connection: jmxquery.JMXConnection,
    queries: Sequence[jmxquery.JMXQuery],
    access: JmxAccess,
    timeout_s: float,
) -> list[jmxquery.JMXQuery]:
    """What `connection.query` answers, asked with a user and a password.

    Raises:
        subprocess.CalledProcessError: the program failed; `stdout` says why.
        subprocess.TimeoutExpired: no answer within `timeout_s` [s].
        ValueError: its answer is cut off.
    """
    asked = "".join(f"{query.to_query_string()};" for query in queries)
    arguments = ["-jar", jmxquery.JAR_PATH, "-url", connection.connection_uri, "-json"]
    arguments += ["-u", access.username or "", "-p", access.password or "", "-q", asked]
    descriptor, name = tempfile.mkstemp(prefix="redline-jmx-")  # readable by its owner only
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            # Quoted as the launcher reads it, which is as JSON does but for non-ASCII.
            stream.write("\n".join(json.dumps(each, ensure_ascii=False) for each in arguments))
        command = [connection.java_path, f"@{name}"]
        answer = subprocess.run(command, capture_output=True, timeout=timeout_s, check=True)
    finally:
        Path(name).unlink()
    return [
        jmxquery.JMXQuery(
            row["mBeanName"], row["attribute"], row.get("attributeKey"), row.get("value")
        )
        for row in json.loads(answer.stdout)
    ]
