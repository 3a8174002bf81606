"""The trials of a run: each trial waits for its gates, offers a load, reads metrics, is judged and
stored.
"""
