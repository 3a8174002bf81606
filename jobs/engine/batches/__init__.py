"""Messages, and the record batches that they are encoded into once."""
