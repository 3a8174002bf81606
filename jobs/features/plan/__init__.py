"""A plan: the number of brokers that a load needs, and the smallest set-up that carries it."""
