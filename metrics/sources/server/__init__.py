"""Readings of brokers and hosts from a Prometheus server that scrapes their exporters."""
