"""The version and the address of the project, for setup.py, the command line and the tables."""

from __future__ import annotations

__version__ = "0.1.0"
HOME = ""
"""The https address of the public repository. The address must be set before the first release;
`make release-check` fails without an address.
"""
