"""Messages, and the record batches into which the messages are encoded."""
