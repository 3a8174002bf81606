"""Reads the traffic of a production cluster: its topics, its consumer groups, its offsets at given
times, and its recent batches.
"""
