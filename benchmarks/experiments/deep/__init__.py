"""Deep kernels: an experiment a module, and the tables of the larger one."""
