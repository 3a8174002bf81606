"""The reading of production's traffic: topics, groups, offsets by time, and recent batches."""
