"""A night: the cases of a suite, measured, judged against the nights before, and reported."""
