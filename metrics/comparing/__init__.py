"""How two sides, or a night and those before it, differ, how sure that is, and why."""
