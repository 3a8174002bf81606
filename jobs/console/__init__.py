"""How events look: on a terminal, and as plain lines."""
