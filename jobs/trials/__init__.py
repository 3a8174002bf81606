"""One trial after the other: load, metrics, verdict, what is kept, and rest in between."""
