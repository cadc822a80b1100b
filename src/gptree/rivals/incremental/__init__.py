"""Classifiers that learn further classes after they were fitted: one method a file, each an `IncrementalRival`."""
