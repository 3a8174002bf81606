"""The work of one broker or host in a measured window, computed from the broker's or host's
samples.
"""
