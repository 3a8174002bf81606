"""Which load to try next, and when to stop.

Pure decisions from the standard library alone: no Spark, Kafka, clock or environment.
"""
