"""Output for people: summaries, charts, the report of a run, tables in notebooks."""
