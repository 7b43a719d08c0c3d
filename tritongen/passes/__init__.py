"""Op -> Op: analyses and rewrites of the structure of the math."""
