"""Ways to brokers: connections that kafka-python opens, and the sockets of an event loop."""
