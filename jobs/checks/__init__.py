"""What is checked before any load: rules apart from what collects the facts for them."""
