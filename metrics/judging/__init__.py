"""Pure rules from the evidence of a trial to its verdict: indicators, validity, attribution."""
