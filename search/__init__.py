"""Searches for a limit: the choice of the next load, and the end of a search.

Decisions are pure functions of their arguments. The package uses only the standard library: no
Spark, Kafka, clock or environment.
"""
