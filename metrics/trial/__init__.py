"""The record of one trial: counts, windows, judgements, and what is derived from them."""
