"""Traffic patterns: the options of producers and consumers, and one point of their space."""
