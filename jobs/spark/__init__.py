"""The Spark session of a job, and the wheels for its executors."""
