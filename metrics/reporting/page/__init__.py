"""The report of a run: one HTML page, made from the tables' rows and the run's summary."""
