"""Commands about recorded runs: `penstock run show`, `diff`, `graph`, `export`.

Not here: `run status` and `run events` (commands/run.py). Start reading at past.py.
"""
