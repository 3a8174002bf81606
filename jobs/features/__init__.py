"""Features, a folder each, which no other room and no other feature imports."""
