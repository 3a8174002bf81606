"""How many times today's traffic fits: production is watched, and nothing is loaded."""
