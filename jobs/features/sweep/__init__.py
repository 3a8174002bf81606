"""A sweep: the cases of an experiment, measured in turns, each as a run."""
