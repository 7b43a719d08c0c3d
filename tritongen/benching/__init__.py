"""Benchmarks of emitted operators: measuring, comparison of two runs, and reports of a run."""
