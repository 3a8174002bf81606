"""Sources of host metrics, for the machines of brokers and executors."""
