"""Settings of heads that `gptree.deep.train` trains together with a network: one method a file.

They are no classifiers: give one as `head=` to `gptree.deep.train`.
"""
