"""What a task of the barrier stage is told, and how it talks with the driver."""
