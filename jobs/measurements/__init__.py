"""Measurements: a file for each question that may be asked of a case, named like the question.

`jobs.campaigns.measurements` finds them; `jobs.runs.measurement` is their protocol.
"""
