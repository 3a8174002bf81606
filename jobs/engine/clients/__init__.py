"""Clients behind one interface: the engine's own client, kafka-python and librdkafka."""
