"""The Delta tables: their rows, the store, and queries for analysts."""
