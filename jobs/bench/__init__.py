"""Benchmarks: ours beside what others built, measured in one run on one machine."""
