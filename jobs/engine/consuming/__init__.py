"""The engine's own consumers: group members, fetching, and the ledger of the records read."""
