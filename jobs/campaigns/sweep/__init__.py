"""A sweep: runs the cases of an experiment, and estimates the effects of its axes."""
