"""A night: measures the cases of a suite, compares the figures with earlier nights, and reports
them.
"""
