"""Which load to try next, and when to stop: pure decisions, no Spark, Kafka, clock or environment."""
