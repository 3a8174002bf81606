"""The work of one broker or host in a measured window, computed from its samples."""
