"""A package for each kind of kernel."""
