"""Errors, bounds of options, and extensions, for all packages except `search`."""
