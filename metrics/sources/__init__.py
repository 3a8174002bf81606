"""Readers of the metrics of brokers and their hosts, behind one protocol each."""
