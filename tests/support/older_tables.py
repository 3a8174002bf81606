"""Tables that version 0.1.0 wrote, with runs on real brokers."""

from __future__ import annotations

from pathlib import Path

OLDER = Path(__file__).parents[1] / "data" / "tables-0.1.0"
LIMIT, TRAFFIC, NIGHT = "20261122-105455-1c35", "20261122-105636-1186", "suite-n1"
"""Ids of a search for two goals, of a fixed load, and of a night."""
