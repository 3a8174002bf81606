"""Followers of a running job: metrics for Prometheus, and messages."""
