"""Errors, accepted values of options, extensions, and values by key.

All packages except `search` use this package.
"""
