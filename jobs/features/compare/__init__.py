"""A comparison of two sides: their set-ups, their pairs of trials, and the answer."""
