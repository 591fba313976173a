"""Benchmarks: `python -m benchmarks [NAME ...]` runs them and prints tables; each also runs alone and prints JSON."""
