"""Real Kafka brokers on this machine: started, supervised, stopped and cleaned up.

`jobs.testbed.launcher.start` gives a run its own brokers, which die with it;
`jobs.testbed.detached` keeps named ones between commands (`redline testbed up|status|down`).
"""
