"""Checks before any load; the rules are separate from the code that collects the facts."""
