"""What `redline compare` is made of: two sides, their pairs of trials, and what they show."""
