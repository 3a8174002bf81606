"""Testbeds: real Kafka brokers on this machine, which are started, supervised and stopped.

`jobs.testbed.facade` is the interface for the rest of the product. `jobs.testbed.launcher.start`
starts brokers that end with the calling process. `jobs.testbed.detached` manages testbeds that run
between commands (`redline testbed up|status|down`).
"""
