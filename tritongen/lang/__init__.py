"""Spec -> Op: the language, its functions and its type check."""
