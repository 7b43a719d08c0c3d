"""Op -> the Op that computes its gradient."""
