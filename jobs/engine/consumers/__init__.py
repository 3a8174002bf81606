"""Consumer groups that read the topic while it is written."""
