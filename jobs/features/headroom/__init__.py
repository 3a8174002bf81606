"""Headroom: how many times today's traffic fits into a cluster. The answer uses the metrics of
production, and the job offers no load.
"""
