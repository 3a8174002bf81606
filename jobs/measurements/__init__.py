"""Measurements that a sweep can make for each case: one file for each measurement, with its name.

`jobs.campaigns.campaign` finds these files; `jobs.runs.measurement` is the protocol of a
measurement.
"""
