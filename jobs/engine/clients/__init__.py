"""Clients behind one protocol: the engine's own, kafka-python's and librdkafka."""
