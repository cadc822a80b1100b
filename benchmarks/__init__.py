"""Benchmarks: trials are frozen data, results are rows of JSON, tables and figures come from rows only."""
