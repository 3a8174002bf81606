"""The checks that show whether a run would start."""
