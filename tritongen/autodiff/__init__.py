"""Op -> the Op of its gradient."""
