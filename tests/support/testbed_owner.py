"""A process that owns a testbed and waits until a test ends it: `python -m ... ROOT`.

It prints the testbed's id when its folder exists, and `ready` when the brokers are ready.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from jobs.testbed.launcher import start
from jobs.testbed.places import testbed_dirs


def say_id(root: Path) -> None:
    """Wait for the folder that `start` creates in the main thread, and print the id."""
    while True:
        for folder in testbed_dirs(root):
            sys.stdout.write(f"{folder.name}\n")
            sys.stdout.flush()
            return
        time.sleep(0.01)


if __name__ == "__main__":
    # A shell that starts the tests with & makes them and their child processes ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ROOT = Path(sys.argv[1])
    threading.Thread(target=say_id, args=(ROOT,), daemon=True).start()
    with start(brokers=1, name="owned", root=ROOT, overrides={"metadata": "combined"}):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        time.sleep(600)
