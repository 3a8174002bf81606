"""Planning: charts of the brokers needed for a demand, and export of a limit to other tools."""
