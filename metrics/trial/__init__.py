"""The record of one trial: its counts, windows and judgements, and the values that are derived from
these.
"""
