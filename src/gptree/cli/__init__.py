"""The `gptree` command. Modules here import torch and scikit-learn only when a command needs them."""
