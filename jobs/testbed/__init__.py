"""Real Kafka brokers on this machine: started, supervised, stopped and cleaned up.

`jobs.testbed.facade` is the entry for the rest of the product.
`jobs.testbed.launcher.start` starts brokers that end with the process that calls it.
`jobs.testbed.detached` keeps named testbeds between commands (`redline testbed up|status|down`).
"""
