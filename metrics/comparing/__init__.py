"""Comparisons: the difference between two sides or between nights, its certainty and its cause."""
