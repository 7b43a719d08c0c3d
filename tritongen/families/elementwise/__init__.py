"""Maps, element by element."""
