"""The version and the address of the project, for setup.py, the command line and the tables."""

from __future__ import annotations

__version__ = "0.1.0"
HOME = ""
"""The https address of the public repository; the first release needs it (`make release-check`)."""
