"""The cluster under load: connection, administration, and the topics of a run."""
