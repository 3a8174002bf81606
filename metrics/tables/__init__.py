"""The Delta tables: rows from records, the store, and the questions that analysts ask."""
