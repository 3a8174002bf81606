"""The engine's own producers: schedules, delivery, retries, and the account of it all."""
