"""The runs of the commands, from the opening of the cluster to the last written file."""
