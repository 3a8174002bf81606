"""The version and the address, in one place: setup.py, the command line and the tables read it."""

from __future__ import annotations

__version__ = "0.1.0"
HOME = ""
"""https address of the public repository; the first release wants it (`make release-check`)."""
