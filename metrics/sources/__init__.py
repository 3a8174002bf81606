"""Sources of metrics: a protocol for brokers, a protocol for hosts, and implementations."""
