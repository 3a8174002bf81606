"""Exact windows: what one node did between two moments, from its samples."""
