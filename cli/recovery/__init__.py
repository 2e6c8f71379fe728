"""Commands about what has gone wrong: `penstock run rerun`, `penstock run step`, `penstock run pause|resume`; `penstock
backup` and `restore`; `penstock prune`.

Not here: `run retry` (commands/bulk.py). Start reading at rerun.py.
"""
