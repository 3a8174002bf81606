"""What is sent: messages, and the record batches that they are encoded into once."""
