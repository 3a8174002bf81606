"""Measurements that a sweep can make for each case. Each measurement is a module in this folder,
and the module has the name of the measurement.

`jobs.campaigns.campaign` finds these modules; `jobs.runs.measurement` is the protocol of a
measurement.
"""
