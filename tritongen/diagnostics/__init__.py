"""What is wrong with a spec, told with its place."""
