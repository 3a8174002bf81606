"""Sources that read brokers and hosts from a Prometheus server, which scrapes their exporters."""
