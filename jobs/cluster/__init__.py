"""The cluster under load: connecting, its administration, the topics of a run."""
