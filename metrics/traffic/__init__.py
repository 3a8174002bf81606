"""Traffic patterns: the options of producers, consumers and topics, and the axes of a search."""
