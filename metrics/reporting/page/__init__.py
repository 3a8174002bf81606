"""The report of a run: one page for people, from the tables' rows and the run's summary."""
