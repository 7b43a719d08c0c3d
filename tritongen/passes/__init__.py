"""Op -> Op: what the structure of the math is."""
