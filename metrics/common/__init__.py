"""Errors, accepted values of options, and extensions.

All packages except `search` use this package.
"""
