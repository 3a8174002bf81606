"""A sweep: its effects, best cases and claims, in words and charts."""
