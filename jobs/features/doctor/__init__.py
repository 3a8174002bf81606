"""The checks of whether a run would start."""
