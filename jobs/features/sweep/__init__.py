"""A sweep: measures the cases of an experiment in turns, each case as a run."""
