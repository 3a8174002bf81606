"""Searches for a limit. They choose the next load to measure, and decide when a search ends.

Decisions are pure functions of their arguments. The package uses only the standard library. It does
not use Spark, Kafka, the clock or the environment.
"""
