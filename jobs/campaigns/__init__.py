"""Campaigns: cases that are measured in turns, and compared; sweeps, nights and comparisons."""
