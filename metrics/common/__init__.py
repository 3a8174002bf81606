"""Errors, bounds of options and quantities with units, for every package above `search`."""
