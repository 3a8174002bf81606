"""Campaigns measure several cases in turns and compare them: sweeps, nights and comparisons."""
