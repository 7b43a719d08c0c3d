"""TOML -> Spec: what a file may hold, read and checked."""
