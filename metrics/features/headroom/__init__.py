"""Headroom: how many times today's traffic fits into the brokers' limits, and when growing traffic
will reach them. Pure.
"""
