"""Runs of pytest, each in a fork of a process that has imported what takes long and stays the same.

    python tests/bench/forked.py < requests

A script on its own, which imports nothing of this project: what a fork tests is the project in
the folder that it is told. A request is a line of JSON with `folder`, `log`, `timeout_s` and
`arguments`; the answer is a line with pytest's exit code, or `null` where time was up.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from typing import Any

HEAVY = ("pytest", "hypothesis.strategies", "numpy", "pydantic", "click.testing", "rich.console",
         "rich.live", "ruamel.yaml", "kafka", "kafka.protocol.metadata", "jinja2", "altair",
         "psutil", "cryptography.x509", "hdrh.histogram", "mpmath", "jsonschema")  # fmt: skip
MEMORY_BYTES = 8 << 30
"""A mutant that never stops to collect things ends here."""
_LOOK_S = 0.02


def run(request: dict[str, Any]) -> None:
    """One run of pytest; ends this process, which is a fork."""
    code = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(request["folder"])
        sys.path[0] = request["folder"]
        sys.argv = ["pytest", *request["arguments"]]
        code = int(importlib.import_module("pytest").main(request["arguments"]))
    except BaseException:  # noqa: BLE001 - whatever it is, the log has it and the parent lives on
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def await_end(child: int, timeout_s: float) -> int | None:
    """The exit code of a run, negative for a signal; None when it took too long and was killed."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_LOOK_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    """Answer requests until there are no more."""
    for name in HEAVY:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run(request)
        sys.stdout.write(json.dumps(await_end(child, request["timeout_s"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
