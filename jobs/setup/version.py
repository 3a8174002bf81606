"""The version, in its one place: setup.py, the command line and the tables read it here."""

from __future__ import annotations

__version__ = "0.1.0"
