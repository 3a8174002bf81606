"""Connections to brokers, opened by kafka-python, and the sockets of an event loop."""
