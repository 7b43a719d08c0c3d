"""Settings, the generated tree, build and check."""
