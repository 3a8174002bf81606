"""What the executors run: payloads, record batches, pacing, producers, statistics."""
