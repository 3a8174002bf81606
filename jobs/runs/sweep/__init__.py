"""A sweep: the cases of an experiment, each a run of its own, and what the axes do."""
