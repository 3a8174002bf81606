"""A night: its judgement against the nights before, and its report."""
