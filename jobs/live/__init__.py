"""Followers of a running job: live metrics for Prometheus, and messages to chats or mail."""
