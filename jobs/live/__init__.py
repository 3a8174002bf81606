"""A run seen from elsewhere while it goes on: metrics for Prometheus, and messages."""
