"""The engine's own consumers: groups, fetching, and the ledger of the records read."""
