"""Searches for a limit: the choice of the next load and the end of the search.

All decisions are pure and need only the standard library: no Spark, Kafka, clock or environment.
"""
