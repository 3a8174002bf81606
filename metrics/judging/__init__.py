"""Pure rules from a trial's evidence to its verdict: indicators, validity, attribution."""
