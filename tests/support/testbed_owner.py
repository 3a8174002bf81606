"""A process that owns a testbed and waits to be ended: `python -m ... ROOT`.

Prints the testbed's id as soon as its folder exists, and `ready` once it is.
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
    """Look for the folder that `start`, in the main thread, is about to make."""
    while True:
        for folder in testbed_dirs(root):
            sys.stdout.write(f"{folder.name}\n")
            sys.stdout.flush()
            return
        time.sleep(0.01)


if __name__ == "__main__":
    # Ignored, and so in all that it starts, where a shell began the tests with &.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ROOT = Path(sys.argv[1])
    threading.Thread(target=say_id, args=(ROOT,), daemon=True).start()
    with start(brokers=1, name="owned", root=ROOT):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        time.sleep(600)
