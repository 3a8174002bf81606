"""What people read: summaries, charts, the page of a run, tables in notebooks."""
