"""The demonstration that is installed with the service: what `penstock demo` registers, starts and checks.

Here: the workflow (textstats.json), what its steps count, as plain functions (textstats.py), and its worker
(textstats_worker.py), a process of its own as every worker is.
Not here: the command that puts them together (cli/commands/demo.py), and examples that are read and not installed
(examples/). Start reading at textstats_worker.py.
"""
