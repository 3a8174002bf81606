"""Comparisons of two sides or of nights: the difference, its certainty and its cause."""
