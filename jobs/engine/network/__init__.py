"""Connections to brokers, which kafka-python opens, and the sockets of an event loop."""
