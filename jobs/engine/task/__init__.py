"""The plan of one task of the barrier stage, and the task's control channel to the driver."""
