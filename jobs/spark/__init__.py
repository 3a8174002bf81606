"""The Spark session of a job, and the wheels that its executors are given."""
