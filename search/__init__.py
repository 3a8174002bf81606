"""Searches for a limit: the choice of the next load to measure, and the end of a search.

Decisions are pure functions of their arguments. The package uses only the standard library. The
package does not use Spark, Kafka, the clock or the environment.
"""
