"""The answer of a sweep, for people and for programs."""
