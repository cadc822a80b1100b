"""Rivals whose network goes on training in sessions: one method a file."""
