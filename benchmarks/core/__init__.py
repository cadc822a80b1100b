"""The benchmark framework: trials and their rows, the runner, experiments, tables and result pages."""
