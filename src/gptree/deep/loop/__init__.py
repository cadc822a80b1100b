"""The training of a network: task, state, steps, checkpoints, processes, log and evaluation."""
