"""What runs: the jobs, and all that touches Spark or Kafka."""
