"""Measurements: one file for each question that a sweep may ask of a case, with the name of the
question.

`jobs.campaigns.campaign` finds these files; `jobs.runs.measurement` is the protocol of a
measurement.
"""
