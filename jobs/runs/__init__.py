"""Runs from opening to the last file: limit, fixed load, nightly, compare."""
