"""Readers of broker metrics behind one protocol; `metrics.sources.chooser` picks one."""
