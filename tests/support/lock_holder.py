"""A process that holds a cluster's lock until it is killed: `python -m ... SERVERS SESSION_S`.

It prints `held` when it holds the lock.
"""

from __future__ import annotations

import sys
import time

from jobs.cluster.connect import admin_client
from jobs.cluster.lock import ClusterLock

if __name__ == "__main__":
    client = admin_client(sys.argv[1].split(","), {}, name="redline run killed of a@b since then")
    lock = ClusterLock(client, print, session_s=float(sys.argv[2]))
    lock.begin()
    lock.require()
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(600)
