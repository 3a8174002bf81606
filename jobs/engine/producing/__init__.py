"""The engine's own producers: schedules, delivery, retries, and accounts."""
