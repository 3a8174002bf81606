"""One folder for each feature. No other package and no other feature imports it."""
