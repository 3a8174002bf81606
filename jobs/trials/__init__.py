"""The trials of a run: the gates before a trial, its load, its metrics, its verdict and its
storage.
"""
