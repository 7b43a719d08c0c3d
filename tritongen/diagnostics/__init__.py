"""Diagnostics: mistakes of a spec and their positions."""
