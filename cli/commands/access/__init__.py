"""Commands for who may do what: `penstock key` (key.py) and `penstock audit` (audit.py).

Not here: how a command gets its own key (cli/main.py). Start reading at key.py.
"""
