"""How many times today's traffic fits into the brokers' limits, and until when. Pure."""
