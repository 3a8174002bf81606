"""A night: its comparison with earlier nights, and its report."""
