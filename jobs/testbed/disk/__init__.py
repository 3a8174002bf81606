"""Disks with a stated write rate under the log dirs of a testbed's brokers."""
