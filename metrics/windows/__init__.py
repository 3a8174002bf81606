"""Exact windows: the work of one node between two moments, from its samples."""
