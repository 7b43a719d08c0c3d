"""Runnable examples of generated operators at work: see README.md."""
