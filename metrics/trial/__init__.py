"""The record of one trial: counts, windows, judgements, and the values derived from them."""
