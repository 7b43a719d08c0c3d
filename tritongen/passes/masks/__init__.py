"""What the condition of a mask tells of the tiles of a score: which are empty, full or mixed."""
