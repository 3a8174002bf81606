"""The code that executors run: payloads, record batches, pacing, producers, statistics."""
