"""The plan of a task of the barrier stage, and its control channel to the driver."""
