"""Measurements: a file for each question that may be asked of a case, named like the question.

`jobs.campaigns.campaign` finds them; `jobs.runs.measurement` is their protocol.
"""
