"""Few-shot class-incremental learning: methods, sessions, networks and tables in common, and experiments."""
