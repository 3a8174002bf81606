"""Planning: charts of the number of brokers that a demand needs, and exports of a limit."""
