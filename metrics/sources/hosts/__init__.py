"""What the machines themselves show: of brokers, and of executors."""
