"""The answer of a sweep, in words and charts: effects, best cases and published claims."""
