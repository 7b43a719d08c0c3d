"""Benchmarks of emitted operators: what a run measured, how two runs compare, and the report of one."""
